"""Every reader and every writer, both ways: bits, names, metadata and attachments of A come back from B."""

import itertools

import candle_convert as cc
import gguf
import numpy as np
import pytest
from candle_convert.convert.load.legacy_llama import TABLES, renamed
from candle_convert.convert.open.detect_format import formats
from candle_convert.runtime.passes.weights.select import Select
from candle_convert.runtime.tensor.dtype import BlockType
from candle_convert.runtime.tensor.element_packing import exact_nbytes
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tests.builders.sample_files import SAMPLES, rows

WRITTEN = [format for format in formats() if format.layout is not None and not (format.graphs or format.architecture)]
PAIRS = [(first, second) for first, second in itertools.product(WRITTEN, WRITTEN)]
SHAPES = [(), (0,), (1,), (3, 0, 2), (8,), (4, 6), (1, 1, 4), (61, 7, 12), (2, 1, 3, 2)]
NAMES = (
    "plain",
    "model.layers.0.weight",
    "ünï/cødé",
    "日本語",
    "with space",
    "a" * 60,
    ".hidden",
    "x.npy",
    "data.pkl",
    "0",
)
METADATA = {
    "format": "pt",
    "emoji 🕯": "zünden\n\t",
    "empty": "",
    "number": "7",
    "true": "true",
    "null": "null",
    "json": '{"a": [1]}',
}
FILES = {"config.json": b'{"model_type": "none"}', "tokenizer.model": bytes(range(256)), "empty.txt": b""}


def _names(pair):
    return "-".join(format.name for format in pair)


def _tensor(dtype, shape, max_dims):
    """Random bytes of that type, None where the shape does not fill whole blocks or has too many dimensions."""
    shape = (*shape[:-1], shape[-1] * dtype.block) if isinstance(dtype, BlockType) and shape else shape
    size = exact_nbytes(dtype, shape)
    if size is None or len(shape) > max_dims:
        return None
    high = 2 if dtype.kind == "bool" else 256
    return StoredTensor(dtype, shape, Held(np.random.default_rng(size).integers(0, high, size, np.uint8).tobytes()))


def _contents(path):
    return {name: (tensor.dtype, tensor.shape, bytes(tensor.raw())) for name, tensor in cc.open(path).weights.items()}


def _path(folder, stem, format):
    return folder / f"{stem}{format.suffixes[0]}"


@pytest.mark.parametrize("pair", PAIRS, ids=_names)
def test_every_dtype_and_shape_there_and_back(pair, tmp_path):
    first, second = pair
    dims = min(format.max_dims or 99 for format in pair)
    made = {
        f"{dtype} {shape}": _tensor(dtype, shape, dims) for dtype in first.dtypes & second.dtypes for shape in SHAPES
    }
    weights = {
        name: tensor
        for name, tensor in made.items()
        if tensor is not None and (tensor.shape or not _pairs_only(tensor, pair))
    }
    there, over, back, again = (
        _path(tmp_path, f"{number}", format) for number, format in enumerate((first, second, first, first))
    )
    cc.save_file(weights, there)
    cc.convert(there, over, verify="full")
    cc.convert(over, back, verify="full")
    cc.convert(over, again)
    expected = {name: (tensor.dtype, tensor.shape, bytes(tensor.raw())) for name, tensor in weights.items()}
    assert _contents(there) == _contents(over) == _contents(back) == expected
    assert cc.hash(there) == cc.hash(over) == cc.hash(back)
    assert back.read_bytes() == again.read_bytes()


def _pairs_only(tensor, pair):
    """torch packs two 4-bit numbers along the last dimension, which a scalar does not have."""
    return tensor.dtype.bits == 4 and any(format.name == "pytorch" for format in pair)


@pytest.mark.parametrize("pair", PAIRS, ids=_names)
def test_names_and_metadata_there_and_back(pair, tmp_path):
    first, second = pair
    weights = {name: np.full((2, 3), number, np.float32) for number, name in enumerate(NAMES)}
    there, over, back = (_path(tmp_path, f"{number}", format) for number, format in enumerate((first, second, first)))
    cc.save_file(weights, there, metadata=METADATA)
    cc.convert(there, over)
    cc.convert(over, back)
    assert set(cc.open(over)) == set(weights)
    assert {key: cc.open(over).metadata.get(key) for key in METADATA} == METADATA
    assert {key: cc.open(back).metadata.get(key) for key in METADATA} == METADATA
    assert _contents(back) == _contents(there) == _contents(over)


@pytest.mark.parametrize("pair", PAIRS, ids=_names)
def test_files_of_the_model_there_and_back(pair, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    cc.save_file({"x": np.ones((2, 2), np.float32)}, folder / "model.safetensors")
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    there, over = (_path(tmp_path, f"{number}", format) for number, format in enumerate(pair))
    cc.convert(folder, there, weights_only=True)
    cc.convert(there, over, weights_only=True)
    cc.convert(over, tmp_path / "out", to=pair[0].name, weights_only=True)
    for path in (there, over, tmp_path / "out"):
        assert {
            name: bytes(storage.read(0, storage.nbytes)) for name, storage in cc.open(path).attachments.items()
        } == FILES
    assert {name: (tmp_path / "out" / name).read_bytes() for name in FILES} == FILES


@pytest.mark.parametrize("target", WRITTEN, ids=lambda format: format.name)
@pytest.mark.parametrize(("format", "name"), rows())
def test_every_sample_into_every_format(format, name, target, tmp_path):
    source = SAMPLES[format][name](tmp_path)
    graph = cc.open(source)
    outputs = [_path(tmp_path, f"out{run}", target) for run in range(2)]
    unheld = [key for key, tensor in graph.weights.items() if tensor.dtype not in target.dtypes]
    if unheld:
        with pytest.raises(cc.UnsupportedError, match="E-OUT-DTYPE"):
            cc.convert(source, outputs[0])
        return
    for output in outputs:
        cc.convert(source, output, verify="full")
    contents = _contents(source)
    if target.name == "gguf" and format in ("ggml", "llama2c"):  # which are of a model that GGUF has names for
        contents = {renamed(key): content for key, content in contents.items() if key not in TABLES}
    assert _contents(outputs[0]) == contents
    assert outputs[0].read_bytes() == outputs[1].read_bytes()


def _fields(path):
    own = ("GGUF.", "general.alignment")
    return {
        key: (field.types, field.contents())
        for key, field in gguf.GGUFReader(path).fields.items()
        if not key.startswith(own)
    }


@pytest.mark.parametrize("second", WRITTEN, ids=lambda format: format.name)
@pytest.mark.parametrize("name", ["version-3", "big-endian"])
def test_types_of_gguf_metadata_come_back(name, second, tmp_path):
    """Through another format and back, numbers keep their width and arrays their element type, as gguf-py sees them."""
    source = SAMPLES["gguf"][name](tmp_path)
    cc.convert(source, _path(tmp_path, "over", second), select=Select(exclude=("quantized",)))
    cc.convert(_path(tmp_path, "over", second), tmp_path / "back.gguf")
    assert _fields(tmp_path / "back.gguf") == _fields(source)


SHARDED = [pair for pair in PAIRS if "npz" not in (pair[0].name, pair[1].name)]


@pytest.mark.parametrize("pair", SHARDED, ids=_names)
def test_shards_there_and_back(pair, tmp_path):
    weights = {f"layers.{number}.weight": np.full((5, 4), number, np.float32) for number in range(7)}
    whole, there, over = _path(tmp_path, "whole", pair[0]), tmp_path / "there", tmp_path / "over"
    cc.save_file(weights, whole)
    for source, target, format in ((whole, there, pair[0]), (there, over, pair[1])):
        cc.convert(source, target, to=format.name, shard_nbytes=200)
        assert len(list(target.iterdir())) >= 4
        assert cc.hash(target) == cc.hash(whole)
