"""Block types against gguf-py's and libggml's codecs."""

import gguf
import numpy as np
import pytest
from candle_convert.runtime.base.errors import FormatError, UnsupportedError
from candle_convert.runtime.tensor.block_codec import SLICE, block_type, codec_of, codecs, decoded, encoded
from candle_convert.runtime.tensor.dtype import BF16, F32
from candle_convert.runtime.tensor.storage import Derived, Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tests.builders.paths import VECTORS
from candle_convert.tests.oracles import libggml

TYPES = sorted(
    (codec.dtype for codec in codecs().values() if codec.dtype.ggml is not None), key=lambda dtype: dtype.name
)
GGML = libggml.load()
WITH_LIBGGML = pytest.mark.skipif(GGML is None, reason="xllamacpp is not installed")
TIES = [
    (dtype, scale)
    for dtype in TYPES
    if not codec_of(dtype).needs_importance
    for scale in (1.0, 1e-39, 3e-45, 1e38)
    if scale < 1e38 or not dtype.name.startswith(("iq1", "iq2", "iq3"))
]
"""Types and sizes of values; libggml ends the process where squares of these types overflow."""
RECORDED = dict(np.load(VECTORS / "quants.npz"))
ENCODED = sorted(name for name in RECORDED if "." in name)
KNOWN_TO_GGUF = {kind.value for kind in gguf.quants._type_traits}


def same(ours, theirs):
    """Equal bit patterns; any NaN equals any NaN."""
    ours, theirs = ours.ravel(), theirs.ravel()
    return ours.shape == theirs.shape and bool(
        ((ours.view(np.uint32) == theirs.view(np.uint32)) | (np.isnan(ours) & np.isnan(theirs))).all()
    )


def random_blocks(dtype, count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, dtype.block_nbytes), dtype=np.uint8)


@pytest.mark.parametrize("dtype", [each for each in TYPES if each.ggml in KNOWN_TO_GGUF], ids=str)
def test_random_blocks_decode_as_gguf_py_does(dtype):
    blocks = random_blocks(dtype, 3000)
    with np.errstate(all="ignore"):
        theirs = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType(dtype.ggml))
    assert same(decoded(codec_of(dtype), blocks.tobytes()), theirs)


@WITH_LIBGGML
@pytest.mark.parametrize("dtype", [each for each in TYPES if each.name not in libggml.INTERMEDIATE], ids=str)
def test_random_blocks_decode_as_libggml_does(dtype):
    blocks = random_blocks(dtype, 20000, seed=2)
    assert same(decoded(codec_of(dtype), blocks.tobytes()), GGML.decode(dtype, blocks))


@pytest.mark.parametrize(
    "codec", [each for each in codecs().values() if each.decoder], ids=lambda codec: codec.dtype.name
)
def test_compiled_decoders_give_what_numpy_ones_do(codec):
    blocks = random_blocks(codec.dtype, 3000, seed=3)
    with np.errstate(all="ignore"):
        wanted = codec.decode(blocks)
    values = np.empty(wanted.size, np.float32)
    codec.decoder(blocks.reshape(-1), values)
    assert same(values, wanted)


def test_large_amounts_are_decoded_by_compiled_code():
    codec = codec_of(block_type("q8_0"))
    blocks = np.full((SLICE // 32, 34), 60, np.uint8)
    assert (decoded(codec, blocks.tobytes()) == codec.decode(blocks[:1])[0, 0]).all()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_ranges_of_a_dequantized_tensor(dtype):
    blocks = random_blocks(dtype, 6, seed=1)
    whole = decoded(codec_of(dtype), blocks.tobytes())
    asked = []

    def read(start, stop):
        asked.append((start, stop))
        return blocks.tobytes()[start:stop]

    tensor = StoredTensor(dtype, (3, 2 * dtype.block), Derived(blocks.size, 1, read))
    plain = tensor.dequantize()
    assert (plain.dtype, plain.shape) == (F32, tensor.shape)
    assert same(plain[1].numpy(), whole.reshape(3, -1)[1])
    assert asked == [(2 * dtype.block_nbytes, 4 * dtype.block_nbytes)]
    assert tensor.dequantize(BF16).nbytes == 2 * tensor.count


def test_empty_tensors_and_partial_blocks():
    dtype = block_type("q4_0")
    assert StoredTensor(dtype, (0, 32), Held(b"")).dequantize().numpy().shape == (0, 32)
    with pytest.raises(FormatError):
        decoded(codec_of(dtype), bytes(17))


def vector(name):
    """(codec, rows, importance, what libggml made of them) of a vector."""
    kind, form = name.split(".")
    wanted = RECORDED[name]
    rows = np.concatenate((RECORDED["ordinary"], RECORDED["huge"]))[: len(wanted)]
    return codec_of(block_type(kind)), rows, RECORDED["importance"] if form == "weighted" else None, wanted


@pytest.mark.parametrize("name", ENCODED)
def test_blocks_are_libggmls_byte_for_byte(name):
    codec, rows, importance, wanted = vector(name)
    found = encoded(codec, rows, importance)
    wrong = np.unique(np.nonzero(found != wanted)[0])
    assert not wrong.size, f"rows {wrong.tolist()} differ"


@pytest.mark.parametrize("name", ENCODED)
def test_ranges_of_rows_are_encoded_alone(name):
    codec, rows, importance, wanted = vector(name)
    weights = np.zeros(0, np.float32) if importance is None else importance
    out = np.full_like(wanted, 0xA5)
    encode = codec.encoder
    encode(rows, weights, out, 3, 20)
    assert (out[3:20] == wanted[3:20]).all()
    assert (out[:3] == 0xA5).all()
    assert (out[20:] == 0xA5).all()
    encode(rows, weights, out, 5, 5)
    assert (out[3:20] == wanted[3:20]).all()


def test_every_type_of_the_table_is_encoded():
    assert {name.split(".")[0] for name in ENCODED} == {dtype.name for dtype in TYPES}


@WITH_LIBGGML
@pytest.mark.parametrize(
    ("dtype", "weighted"),
    [(each, weighted) for each in TYPES for weighted in {codec_of(each).needs_importance, True}],
    ids=str,
)
def test_random_rows_encode_as_libggml_does(dtype, weighted):
    codec = codec_of(dtype)
    random = np.random.default_rng(31)
    rows = (random.standard_t(3, (150, 3 * 256)) * 10 ** random.uniform(-4, 2, (150, 1))).astype(np.float32)
    importance = np.exp(random.standard_normal(rows.shape[1]) * 2).astype(np.float32) if weighted else None
    assert (encoded(codec, rows, importance) == GGML.encode(dtype, rows, importance)).all()


@WITH_LIBGGML
@pytest.mark.parametrize(("dtype", "scale"), TIES, ids=str)
def test_ties_and_zeros_of_both_signs_encode_as_libggml_does(dtype, scale):
    random = np.random.default_rng(7)
    levels = random.choice(np.array([-3, -2, -1, -0.0, 0.0, 1, 2, 3]), (400, 256))
    levels[:200] = np.where(
        random.random((200, 256)) < np.linspace(0, 1, 200)[:, None], levels[:200], np.copysign(0, levels[:200])
    )
    levels[100:150] = np.abs(levels[100:150])
    levels[150:200] = -np.abs(levels[150:200])
    rows = (levels * scale).astype(np.float32)
    assert (encoded(codec_of(dtype), rows) == GGML.encode(dtype, rows)).all()


def test_what_cannot_be_encoded_is_refused():
    rows = np.ones((2, 256), np.float32)
    with pytest.raises(UnsupportedError):
        encoded(codec_of(block_type("iq2_xs")), rows)
    with pytest.raises(FormatError):
        encoded(codec_of(block_type("q4_k")), rows[:, :128])
    with pytest.raises(FormatError):
        encoded(codec_of(block_type("q4_k")), rows, np.ones(255))
    with pytest.raises(FormatError):
        encoded(codec_of(block_type("q4_k")), rows * np.nan)


def test_no_rows():
    assert encoded(codec_of(block_type("q4_k")), np.ones((0, 256))).shape == (0, 144)
