"""GGUF: gguf-py and libggml as oracles for both directions, byte-for-byte copies, split files, attachments."""

import json
import struct

import candle_convert as cc
import gguf
import numpy as np
import pytest
from candle_convert.formats.containers.gguf.byte_order import FIELDS
from candle_convert.formats.containers.gguf.strings import short_strings
from candle_convert.formats.gguf import FORMAT
from candle_convert.runtime.contract.format import ReadOptions
from candle_convert.runtime.passes.weights.select import Select
from candle_convert.runtime.tensor.dtype import BY_GGML, DTYPES, F32, I8
from candle_convert.runtime.tensor.file import Source
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tests.builders.gguf_files import BLOCKS, GGML, PLAIN, Maker, random_tensor, same, write

VALUES = {
    "u8": np.uint8(255),
    "i8": np.int8(-128),
    "u16": np.uint16(65535),
    "i16": np.int16(-32768),
    "u32": np.uint32(2**32 - 1),
    "i32": np.int32(-(2**31)),
    "f32": np.float32(0.1),
    "bool": True,
    "string": "naïve \n 语言",
    "u64": np.uint64(2**64 - 1),
    "i64": np.int64(-(2**63)),
    "f64": np.float64(0.1),
}
OUTDATED = {"Q8_1": 36}
"""Types of which gguf-py has an older size than ggml."""
IN_GGUF_PY = [
    dtype
    for dtype in (*PLAIN, *BLOCKS)
    if dtype.ggml in set(gguf.GGMLQuantizationType) and dtype.name.upper() not in OUTDATED
]


def writer(path, order=gguf.GGUFEndian.LITTLE, **options):
    made = gguf.GGUFWriter(path, "llama", endianess=order, **options)
    for name, value in VALUES.items():
        kind = gguf.GGUFValueType[
            {"u": "UINT", "i": "INT", "f": "FLOAT"}[name[0]] + name[1:] if name[1:].isdigit() else name.upper()
        ]
        made.add_key_value(f"one.{name}", value if name in ("string", "bool") else value.item(), kind)
        made.add_key_value(
            f"many.{name}", [value if name in ("string", "bool") else value.item()] * 3, gguf.GGUFValueType.ARRAY, kind
        )
    made.add_key_value("nested", [[1, 2], [3]], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.ARRAY)
    return made


def finish(made):
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


def add(made, name, tensor):
    """A tensor of ours to gguf-py's writer."""
    kind = gguf.GGMLQuantizationType(tensor.dtype.ggml)
    data = np.frombuffer(tensor.raw(), np.uint8)
    if tensor.dtype in BLOCKS or tensor.dtype.name == "bf16":
        made.add_tensor(name, data.reshape(*tensor.shape[:-1], -1), raw_dtype=kind)
    else:
        made.add_tensor(name, tensor.numpy())


def test_the_type_table_is_that_of_gguf_py():
    for kind, (length, size) in gguf.GGML_QUANT_SIZES.items():
        dtype = BY_GGML[kind.value]
        assert (dtype.name, dtype.block, dtype.block_nbytes) == (
            kind.name.lower(),
            length,
            OUTDATED.get(kind.name, size),
        )
    newer = [dtype for number, dtype in BY_GGML.items() if number not in set(gguf.GGMLQuantizationType)]
    assert all((dtype.name, dtype.ggml, dtype.block, dtype.block_nbytes) == ("q2_0", 42, 64, 18) for dtype in newer)
    assert FIELDS.keys() == {dtype.name for dtype in BLOCKS}
    assert FORMAT.dtypes == {*PLAIN, *BLOCKS}


@pytest.mark.skipif(GGML is None, reason="xllamacpp is not installed")
def test_the_type_table_is_that_of_libggml():
    for dtype in (*PLAIN, *BLOCKS):
        traits = GGML.traits(dtype)
        assert (traits.name.decode().lower(), traits.block, traits.size) == (
            dtype.name,
            dtype.block,
            dtype.block_nbytes,
        )


def test_reads_what_gguf_py_writes(tmp_path):
    made = writer(tmp_path / "a.gguf")
    tensors = {dtype.name: random_tensor(dtype) for dtype in IN_GGUF_PY}
    for name, tensor in tensors.items():
        add(made, name, tensor)
    finish(made)
    graph = cc.open(tmp_path / "a.gguf")
    assert (graph.format, graph.notes, list(graph)) == ("gguf", [], list(tensors))
    for name, tensor in tensors.items():
        assert (graph[name].dtype, graph[name].shape, bytes(graph[name].raw())) == (
            tensor.dtype,
            tensor.shape,
            tensor.raw(),
        )
    many = {
        f"many.{name}": [value] * 3 if name == "string" else np.array([value] * 3) for name, value in VALUES.items()
    }
    nested = (np.array([1, 2], np.int32), np.array([3], np.int32))
    expected = {"general.architecture": "llama"}
    for name, value in VALUES.items():
        expected |= {f"one.{name}": value, f"many.{name}": many[f"many.{name}"]}
    assert same(graph.metadata, {**expected, "nested": nested})
    assert isinstance(graph.metadata["nested"], tuple)
    assert type(graph.metadata["one.bool"]) is bool


@pytest.mark.parametrize("alignment", [32, 64, 8])
def test_copies_are_byte_identical(alignment, tmp_path):
    made = writer(tmp_path / "a.gguf")
    made.add_chat_template("{{ x }}")
    if alignment != 32:
        made.add_custom_alignment(alignment)
    made.add_key_value("last", 1, gguf.GGUFValueType.UINT8)
    for dtype in (DTYPES["q4_k"], DTYPES["f32"], I8, DTYPES["q8_0"]):
        add(made, f"z.{dtype.name}", random_tensor(dtype))
    finish(made)
    cc.convert(tmp_path / "a.gguf", tmp_path / "b.gguf")
    assert (tmp_path / "b.gguf").read_bytes() == (tmp_path / "a.gguf").read_bytes()
    cc.convert(tmp_path / "a.gguf", tmp_path / "c.safetensors", select=Select(exclude=("q4_k", "q8_0")))
    cc.convert(tmp_path / "c.safetensors", tmp_path / "d.gguf")
    assert cc.open(tmp_path / "d.gguf").metadata.keys() == cc.open(tmp_path / "a.gguf").metadata.keys()


def test_gguf_py_reads_what_we_write(tmp_path):
    tensors = {dtype.name: random_tensor(dtype) for dtype in IN_GGUF_PY}
    tensors |= {"scalar": StoredTensor.of(np.float32(7)), "empty": StoredTensor(F32, (0, 4), Held(b""))}
    arrays = {
        f"many.{name}": ["x", ""] if name == "string" else np.array([value, value]) for name, value in VALUES.items()
    }
    metadata = {"general.architecture": "llama", **VALUES, **arrays}
    (path,) = write(tmp_path / "a.gguf", tensors, metadata)
    reader = gguf.GGUFReader(path)
    assert [tensor.name for tensor in reader.tensors] == list(tensors)
    for found in reader.tensors:
        ours = tensors[found.name]
        assert (found.tensor_type.value, tuple(found.shape[::-1])) == (ours.dtype.ggml, ours.shape)
        assert found.data.tobytes() == bytes(ours.raw())
    for key, value in metadata.items():
        contents = reader.fields[key].contents()
        assert contents == (value.tolist() if hasattr(value, "tolist") else value), key
        if isinstance(value, np.generic):
            assert reader.fields[key].parts[-1].dtype == value.dtype


@pytest.mark.skipif(GGML is None, reason="xllamacpp is not installed")
def test_libggml_reads_what_we_write(tmp_path):
    tensors = {dtype.name: random_tensor(dtype) for dtype in (*PLAIN, *BLOCKS)}
    tensors |= {
        "scalar": StoredTensor.of(np.float32(7)),
        "empty": StoredTensor(F32, (0, 4), Held(b"")),
        "n" * 63: random_tensor(F32),
    }
    metadata = {"general.alignment": np.uint32(64), **VALUES, "words": ["x", ""], "none": [], "numbers": np.arange(5)}
    for path in write(tmp_path / "a.gguf", tensors, metadata) + write(
        tmp_path / "b.gguf", tensors, metadata, shard_tensors=5
    ):
        found, data = GGML.tensors(path), path.read_bytes()
        assert found
        for name, kind, offset, size in found:
            assert (kind, data[offset : offset + size]) == (tensors[name].dtype.ggml, bytes(tensors[name].raw())), name


def test_big_endian_files_of_gguf_py(tmp_path):
    arrays = {
        "f": np.arange(6, dtype=np.float32).reshape(2, 3),
        "h": np.ones((4,), np.float16),
        "i": np.arange(3, dtype=np.int64),
    }
    for order, name in ((gguf.GGUFEndian.BIG, "big"), (gguf.GGUFEndian.LITTLE, "little")):
        made = writer(tmp_path / f"{name}.gguf", order)
        for key, array in arrays.items():
            made.add_tensor(key, array)
        finish(made)
    big, little = cc.open(tmp_path / "big.gguf"), cc.open(tmp_path / "little.gguf")
    assert same(big.metadata, little.metadata)
    for key, array in arrays.items():
        assert (big[key].numpy() == array).all()
    cc.convert(tmp_path / "big.gguf", tmp_path / "again.gguf")
    assert (tmp_path / "again.gguf").read_bytes() == (tmp_path / "little.gguf").read_bytes()


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("big", [False, True])
def test_all_versions_and_byte_orders(version, big, tmp_path):
    maker = Maker(version, big)
    pairs = [
        maker.pair("s", "string", "text"),
        maker.array("a", "string", ["x", "yy"]),
        maker.array("n", "i16", [1, -2]),
    ]
    data = np.arange(6, dtype=maker.order + "f4")
    (tmp_path / "a.gguf").write_bytes(maker.file(pairs, [maker.info("x", [3, 2])], data.tobytes()))
    graph = cc.open(tmp_path / "a.gguf")
    assert same(graph.metadata, {"s": "text", "a": ["x", "yy"], "n": np.array([1, -2], np.int16)})
    assert graph["x"].numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_many_strings_across_windows(tmp_path):
    tokens = [f"{number}é" * (number % 7) for number in range(100_000)] + ["x" * 600_000, ""]
    (path,) = write(tmp_path / "a.gguf", {}, {"tokens": tokens, "after": "1"})
    found = cc.open(path).metadata
    assert found == {"tokens": tokens, "after": "1"}
    reader = gguf.GGUFReader(path)
    assert reader.fields["tokens"].contents(99_999) == tokens[99_999]


def test_shards(tmp_path):
    tensors = {f"t{number}": random_tensor(dtype, number) for number, dtype in enumerate(PLAIN)}
    metadata = {"general.architecture": "llama", "general.alignment": np.uint32(64), "k": "v"}
    paths = write(tmp_path / "m.gguf", tensors, metadata, shard_tensors=3)
    assert [path.name for path in paths] == [f"m-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]
    for path in paths:
        graph = cc.open(path)
        assert graph.files == [str(each) for each in paths]
        assert same(graph.metadata, metadata)
        assert {name: bytes(tensor.raw()) for name, tensor in graph.weights.items()} == {
            name: tensor.raw() for name, tensor in tensors.items()
        }
    for number, path in enumerate(paths):
        reader = gguf.GGUFReader(path)
        marks = {key: reader.fields[key] for key in ("split.no", "split.count", "split.tensors.count")}
        assert {key: (field.contents(), field.types) for key, field in marks.items()} == {
            "split.no": (number, [gguf.GGUFValueType.UINT16]),
            "split.count": (3, [gguf.GGUFValueType.UINT16]),
            "split.tensors.count": (8, [gguf.GGUFValueType.INT32]),
        }
        assert [tensor.name for tensor in reader.tensors] == list(tensors)[3 * number : 3 * number + 3]
    cc.convert(paths[0], tmp_path / "whole.gguf")
    assert same(cc.open(tmp_path / "whole.gguf").metadata, metadata)
    cc.convert(tmp_path / "whole.gguf", tmp_path / "m.gguf", shard_tensors=3, force=True)
    assert [path.read_bytes() for path in paths] == [
        path.read_bytes() for path in write(tmp_path / "m.gguf", tensors, metadata, shard_tensors=3)
    ]


def test_shards_of_gguf_py(tmp_path):
    made = writer(tmp_path / "m.gguf", split_max_tensors=2)
    tensors = {f"t{number}": random_tensor(F32, number) for number in range(5)}
    for name, tensor in tensors.items():
        add(made, name, tensor)
    finish(made)
    graph = cc.open(tmp_path / "m-00002-of-00003.gguf")
    assert list(graph) == list(tensors)
    assert bytes(graph["t4"].raw()) == tensors["t4"].raw()
    assert "split.no" not in graph.metadata


def test_the_marks_of_a_merged_file_stay(tmp_path):
    metadata = {"split.no": np.uint16(0), "split.count": np.uint16(0), "k": "v"}
    (path,) = write(tmp_path / "a.gguf", {}, metadata)
    assert same(cc.open(path).metadata, metadata)
    (path,) = write(tmp_path / "a.gguf", {}, metadata | {"split.count": np.uint16(3)})
    assert same(cc.open(path).metadata, {"k": "v"})


FILES = {
    "tokenizer.json": b"{}",
    "chat_template.jinja": "{{ é }}".encode(),
    "config.json": b'{"a": 1}',
    "a.model": b"\x80\xff",
    "empty.txt": b"",
}


def test_attachments(tmp_path):
    attachments = {name: Held(data) for name, data in FILES.items()}
    (path,) = write(tmp_path / "a.gguf", {"x": random_tensor(F32)}, {"general.name": "n"}, attachments)
    graph = cc.open(path)
    assert {name: bytes(storage.read(0, storage.nbytes)) for name, storage in graph.attachments.items()} == FILES
    keys = {"tokenizer.huggingface.json": "{}", "tokenizer.chat_template": "{{ é }}"}
    assert graph.metadata == {"general.name": "n", **keys}
    reader = gguf.GGUFReader(path)
    assert reader.fields["candle_convert.file.config.json"].contents() == '{"a": 1}'
    assert reader.fields["candle_convert.file.a.model"].contents() == [0x80, 0xFF]
    cc.convert(path, tmp_path / "b.gguf")
    assert (tmp_path / "b.gguf").read_bytes() == path.read_bytes()
    cc.convert(path, tmp_path / "c.safetensors")
    cc.convert(tmp_path / "c.safetensors", tmp_path / "d.gguf")
    again = cc.open(tmp_path / "d.gguf")
    assert again.metadata == graph.metadata
    assert {name: bytes(storage.read(0, storage.nbytes)) for name, storage in again.attachments.items()} == FILES


def test_the_newer_of_template_key_and_template_file_wins(tmp_path):
    (path,) = write(tmp_path / "a.gguf", {"x": random_tensor(F32)}, {"tokenizer.chat_template": "old", "k": "v"})
    key_changed, file_changed, removed = cc.open(path), cc.open(path), cc.open(path)
    key_changed.metadata["tokenizer.chat_template"] = "new"
    file_changed.attachments["chat_template.jinja"] = Held(b"new")
    del removed.metadata["tokenizer.chat_template"]
    for graph, expected in (
        (key_changed, {"tokenizer.chat_template": "new", "k": "v"}),
        (file_changed, {"tokenizer.chat_template": "new", "k": "v"}),
        (removed, {"k": "v"}),
    ):
        (made,) = write(tmp_path / "b.gguf", {}, graph.metadata, graph.attachments)
        assert cc.open(made).metadata == expected


def test_a_binary_file_of_a_conventional_name(tmp_path):
    (path,) = write(tmp_path / "a.gguf", {}, {}, {"tokenizer.json": Held(b"\xff")})
    graph = cc.open(path)
    assert graph.metadata == {}
    assert graph.attachments["tokenizer.json"].read(0, 1) == b"\xff"


def test_what_cannot_be_written(tmp_path):
    for name in ("n" * 64, "é" * 32, "\ud800"):
        with pytest.raises(cc.UnsupportedError, match="--rename"):
            write(tmp_path / "a.gguf", {name: random_tensor(F32)})
    assert write(tmp_path / "a.gguf", {"n" * 63: random_tensor(F32)})
    for value in (0, 33, "32", 2**21, True):
        with pytest.raises(cc.UsageError, match="E-GGUF-ALIGNMENT"):
            write(tmp_path / "a.gguf", {}, {"general.alignment": value})


def test_check_names_tensor_and_place(tmp_path):
    data = bytearray(4 * 34)
    data[2 * 34 : 2 * 34 + 2] = b"\x00\x7c"
    tensors = {
        "a": StoredTensor(F32, (1,), Held(bytes(4))),
        "w": StoredTensor(DTYPES["q8_0"], (4, 32), Held(bytes(data))),
    }
    (path,) = write(tmp_path / "a.gguf", tensors)
    (finding,) = FORMAT.check(Source(path), ReadOptions())
    start = path.stat().st_size - 4 * 34 - (-4 * 34 % 32)
    assert (finding.code, finding.severity, finding.offset, finding.member) == (
        "E-GGUF-SCALE",
        "error",
        start + 2 * 34,
        "w",
    )


def test_bytes_behind_the_last_tensor_are_noted(tmp_path):
    (path,) = write(tmp_path / "a.gguf", {"a": random_tensor(I8)})
    path.write_bytes(path.read_bytes() + b"PK")
    assert [note.code for note in cc.open(path).notes] == ["W-GGUF-TRAILING"]
    path.write_bytes(path.read_bytes()[:-4])
    assert bytes(cc.open(path)["a"].raw()) == random_tensor(I8).raw()


def test_inspect_shows_a_gguf_file(tmp_path, capsys):
    from candle_convert.convert.cli.main import run

    (path,) = write(
        tmp_path / "a.gguf", {"a": random_tensor(DTYPES["q4_k"])}, {"general.name": "n", "ids": np.arange(3)}
    )
    assert run(["inspect", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["format"], shown["tensors"][0]["dtype"], shown["metadata"]["general.name"]) == ("gguf", "q4_k", "n")


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("strange", [None, "x" * 300, "\u00e9" * 128, b"\xff\xfe", "".join(map(chr, range(32))), ""])
def test_many_strings_are_read_as_one_by_one(order, strange):
    texts = [f"token {i} \u6587" for i in range(500)]
    wanted = [text.encode() for text in texts]
    if strange is not None:
        wanted.insert(77, strange if isinstance(strange, bytes) else strange.encode())
    data = b"head" + b"".join(struct.pack(order + "Q", len(text)) + text for text in wanted) + b"tail"
    found = short_strings(data, 4, len(wanted), 8, 0 if order == "<" else 7)
    if strange is None:
        assert found is not None
        assert (found[0], found[1].tolist(), found[2]) == (b"".join(wanted), list(map(len, wanted)), len(data) - 4)
    else:
        assert found is None
    assert short_strings(data[:1000], 4, 10, 8, 0 if order == "<" else 7)[0].decode() == "".join(texts[:10])


@pytest.mark.parametrize("strange", [None, "x" * 300, ""])
def test_many_strings_of_a_file_are_equal_to_a_list_and_are_written_as_one(strange, tmp_path):
    from candle_convert.convert.translate.metadata_value import kind_of, readable
    from candle_convert.runtime.base.string_array import StringArray
    from candle_convert.runtime.contract.metadata import to_json

    texts = [f"token {i} \u6587" for i in range(9000)]
    texts[7000:7000] = [] if strange is None else [strange]
    (path,) = write(tmp_path / "a.gguf", {}, {"texts": texts, "after": "x"})
    found = cc.open(path).metadata["texts"]
    assert isinstance(found, StringArray) == (strange is None)
    assert found == texts
    assert list(found) == texts
    assert (len(found), found[0], found[-1], found[8998], found[3:6]) == (
        len(texts),
        texts[0],
        texts[-1],
        texts[8998],
        texts[3:6],
    )
    assert found != texts[:-1]
    assert (to_json(found), readable(found), kind_of(found), repr(found)) == (texts, texts, "str[]", repr(texts))
    (again,) = write(tmp_path / "b.gguf", {}, cc.open(path).metadata)
    assert again.read_bytes() == path.read_bytes()
    assert cc.open(again).metadata["texts"] == found
