"""Safetensors: hostile headers, and the safetensors library as the oracle for both directions."""

import json
import re
import struct

import candle_convert as cc
import numpy as np
import pytest
import safetensors
from candle_convert.runtime.tensor.dtype import BY_SAFETENSORS, DTYPES
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from safetensors import safe_open


def _file(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _entry(shape=(2,), offsets=(0, 8), dtype="F32", **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


def _one(data=bytes(8), **changes):
    return _file({"a": {**_entry(), **changes}}, data)


def _text(text, data=bytes(8)):
    return _file(text.encode(), data)


A = '"dtype":"F32","shape":[2],"data_offsets":[0,8]'
PLAIN = json.dumps({"a": _entry()})
BIG = 1 << 63

# number, id, the file's bytes, our error code ("" where it opens)
HOSTILE = [
    (1, "empty", b"", "E-FILE-EMPTY"),
    (1, "one-byte", b"\x02", "E-ST-SHORT"),
    (1, "seven-bytes", b"\x01" * 7, "E-ST-SHORT"),
    (1, "only-a-length", struct.pack("<Q", 0), "E-FILE-EMPTY"),
    (2, "header-2^63", struct.pack("<Q", BIG) + b"{}", "E-ST-HEADER-LENGTH"),
    (2, "header-2^64-1", struct.pack("<Q", (1 << 64) - 1) + b"{}", "E-ST-HEADER-LENGTH"),
    (2, "header-one-too-long", struct.pack("<Q", 3) + b"{}", "E-ST-HEADER-LENGTH"),
    (4, "not-utf8", _file(b'{"\xff":' + json.dumps(_entry()).encode() + b"}", bytes(8)), "E-ST-JSON"),
    (4, "utf16", _file(PLAIN.encode("utf-16"), bytes(8)), "E-ST-JSON"),
    (4, "bom", _file(b"\xef\xbb\xbf" + PLAIN.encode(), bytes(8)), "E-ST-JSON"),
    (4, "half-a-surrogate-pair", _text('{"\\ud800":{' + A + "}}"), "E-ST-JSON"),
    (5, "not-json", _text("{'a': 1}"), "E-ST-JSON"),
    (5, "nan", _text('{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,8]}}'), "E-ST-JSON"),
    (5, "infinity", _text('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,Infinity]}}'), "E-ST-JSON"),
    (5, "minus-infinity", _text('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,-Infinity]}}'), "E-ST-JSON"),
    (5, "a-list", _text("[]", b""), "E-ST-JSON"),
    (5, "a-string", _text('"x"', b""), "E-ST-JSON"),
    (5, "null", _text("null", b""), "E-ST-JSON"),
    (5, "two-values", _text("{} {}", b""), "E-ST-JSON"),
    (5, "comma-at-the-end", _text('{"a":{' + A + "},}"), "E-ST-JSON"),
    (5, "control-character", _text('{"\n":{' + A + "}}"), "E-ST-JSON"),
    (
        5,
        "number-of-5000-digits",
        _text('{"a":{"dtype":"F32","shape":[' + "1" * 5000 + '],"data_offsets":[0,8]}}'),
        "E-ST-JSON",
    ),
    (5, "string-without-end", _text('{"' + '\\"' * 200_000 + "}", b""), "E-ST-JSON"),
    (6, "leading-space", _text(" " + PLAIN), "E-ST-JSON"),
    (6, "leading-newline", _text("\n" + PLAIN), "E-ST-JSON"),
    (6, "trailing-letter", _text(PLAIN + "x"), "E-ST-JSON"),
    (6, "trailing-nul", _text(PLAIN + "\0"), "E-ST-JSON"),
    (7, "nested-100k", _text('{"a":' + "[" * 100_000 + "]" * 100_000 + "}"), "E-LIMIT-DEPTH"),
    (7, "nested-100k-objects", _text('{"a":' * 100_000 + "1" + "}" * 100_000), "E-LIMIT-DEPTH"),
    (7, "nested-without-end", _text("{" + "[" * 100_000 + "}"), "E-LIMIT-DEPTH"),
    (7, "a-million-lists", _text('{"a":[' + "[]," * 2_000_000 + "[]]}"), "E-LIMIT-HEADER"),
    (8, "two-names", _text('{"a":{' + A + '},"a":{' + A.replace("0,8", "8,16") + "}}", bytes(16)), "E-ST-JSON"),
    (8, "two-names-of-one-range", _text('{"a":{' + A + '},"a":{' + A + "}}"), "E-ST-JSON"),
    (8, "two-names-differently-spelt", _text('{"a":{' + A + '},"\\u0061":{' + A + "}}"), "E-ST-JSON"),
    (8, "two-dtypes", _text('{"a":{"dtype":"F32",' + A + "}}"), "E-ST-JSON"),
    (8, "two-metadata", _text('{"__metadata__":{},"__metadata__":{},"a":{' + A + "}}"), "E-ST-JSON"),
    (8, "two-metadata-keys", _text('{"__metadata__":{"k":"1","k":"2"},"a":{' + A + "}}"), "E-ST-JSON"),
    (9, "overlap", _file({"a": _entry(), "b": _entry(offsets=(4, 12))}, bytes(12)), "E-ST-OVERLAP"),
    (9, "same-range", _file({"a": _entry(), "b": _entry()}, bytes(8)), "E-ST-OVERLAP"),
    (9, "inside-another", _file({"a": _entry((4,), (0, 16)), "b": _entry((1,), (4, 8))}, bytes(16)), "E-ST-OVERLAP"),
    (
        9,
        "empty-inside-another",
        _file({"a": _entry((4,), (0, 16)), "b": _entry((0,), (4, 4))}, bytes(16)),
        "E-ST-OVERLAP",
    ),
    (10, "hole", _file({"a": _entry(), "b": _entry(offsets=(12, 20))}, bytes(20)), "E-ST-HOLE"),
    (10, "hole-at-the-start", _one(bytes(12), data_offsets=[4, 12]), "E-ST-HOLE"),
    (11, "trailing-bytes", _one(bytes(9)), "E-ST-TRAILING"),
    (11, "a-zip-behind", _one(bytes(8) + b"PK\5\6" + bytes(18)), "E-ST-TRAILING"),
    (11, "no-tensors-but-bytes", _file({}, bytes(4)), "E-ST-TRAILING"),
    (12, "one-byte-short", _one(bytes(7)), "E-ST-TRUNCATED"),
    (12, "no-data", _one(b""), "E-ST-TRUNCATED"),
    (12, "4-TiB-promised", _one(bytes(8), shape=[1 << 40], data_offsets=[0, 4 << 40]), "E-ST-TRUNCATED"),
    (13, "begin-after-end", _one(shape=[0], data_offsets=[8, 0]), "E-ST-ENTRY"),
    (13, "negative-begin", _one(data_offsets=[-8, 0]), "E-ST-ENTRY"),
    (13, "float", _one(data_offsets=[0.0, 8.0]), "E-ST-ENTRY"),
    (13, "exponent", _text('{"a":{"dtype":"F32","shape":[2e0],"data_offsets":[0,8]}}'), "E-ST-ENTRY"),
    (13, "true", _one(shape=[True], data_offsets=[0, 4]), "E-ST-ENTRY"),
    (13, "string", _one(data_offsets=["0", "8"]), "E-ST-ENTRY"),
    (13, "three-offsets", _one(data_offsets=[0, 4, 8]), "E-ST-ENTRY"),
    (13, "over-2^63", _one(data_offsets=[BIG, BIG + 8]), "E-ST-ENTRY"),
    (13, "over-2^64", _one(data_offsets=[1 << 64, (1 << 64) + 8]), "E-ST-ENTRY"),
    (13, "end-over-2^63", _one(data_offsets=[0, BIG + 8]), "E-ST-ENTRY"),
    (14, "too-few-bytes", _one(data_offsets=[0, 4], data=bytes(4)), "E-ST-SIZE"),
    (14, "too-many-bytes", _one(data_offsets=[0, 12], data=bytes(12)), "E-ST-SIZE"),
    (14, "scalar-of-8-bytes", _one(shape=[]), "E-ST-SIZE"),
    (14, "empty-of-8-bytes", _one(shape=[0]), "E-ST-SIZE"),
    (14, "odd-4-bit", _file({"a": _entry((3,), (0, 1), "F4")}, bytes(1)), "E-ST-SIZE"),
    (14, "odd-4-bit-rounded-up", _file({"a": _entry((3,), (0, 2), "F4")}, bytes(2)), "E-ST-SIZE"),
    (14, "odd-6-bit", _file({"a": _entry((3,), (0, 3), "F6_E2M3")}, bytes(3)), "E-ST-SIZE"),
    (15, "product-wraps-to-2", _one(shape=[1 << 33, 1 << 33, 2]), "E-ST-SHAPE"),
    (15, "product-wraps-to-0", _one(shape=[1 << 32, 1 << 32], data_offsets=[0, 0], data=b""), "E-ST-SHAPE"),
    (15, "bytes-wrap-to-8", _one(shape=[(1 << 62) + 2]), "E-ST-SHAPE"),
    (15, "nought-times-overflow", _one(shape=[0, 1 << 62, 1 << 62], data_offsets=[0, 0], data=b""), "E-ST-SHAPE"),
    (15, "65-dimensions", _one(shape=[1] * 64 + [2]), "E-ST-SHAPE"),
    (15, "a-million-dimensions", _one(shape=[1] * 1_000_000 + [2]), "E-ST-SHAPE"),
    (15, "a-thousand-huge-dimensions", _one(shape=[1 << 62] * 10_000), "E-ST-SHAPE"),
    (16, "unknown-dtype", _one(dtype="F128"), "E-ST-DTYPE"),
    (16, "lower-case-dtype", _one(dtype="f32"), "E-ST-DTYPE"),
    (16, "dtype-is-a-number", _one(dtype=1), "E-ST-DTYPE"),
    (16, "dtype-is-a-list", _one(dtype=["F32"]), "E-ST-DTYPE"),
    (17, "no-dtype", _file({"a": {"shape": [2], "data_offsets": [0, 8]}}, bytes(8)), "E-ST-ENTRY"),
    (17, "no-shape", _file({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, bytes(8)), "E-ST-ENTRY"),
    (17, "no-offsets", _file({"a": {"dtype": "F32", "shape": [2]}}, bytes(8)), "E-ST-ENTRY"),
    (17, "one-key-more", _file({"a": _entry(more=1)}, bytes(8)), "E-ST-ENTRY"),
    (17, "entry-is-a-list", _file({"a": ["F32", [2], [0, 8]]}, bytes(8)), "E-ST-ENTRY"),
    (17, "entry-is-null", _file({"a": None}), "E-ST-ENTRY"),
    (17, "shape-is-a-number", _one(shape=2), "E-ST-ENTRY"),
    (17, "shape-is-nested", _one(shape=[[2]]), "E-ST-ENTRY"),
    (18, "number-in-metadata", _file({"__metadata__": {"k": 1}, "a": _entry()}, bytes(8)), "E-ST-METADATA"),
    (18, "null-in-metadata", _file({"__metadata__": {"k": None}, "a": _entry()}, bytes(8)), "E-ST-METADATA"),
    (18, "metadata-is-a-list", _file({"__metadata__": [], "a": _entry()}, bytes(8)), "E-ST-METADATA"),
    (18, "metadata-is-a-string", _file({"__metadata__": "x", "a": _entry()}, bytes(8)), "E-ST-METADATA"),
    (20, "scalar", _one(shape=[], data_offsets=[0, 4], data=bytes(4)), ""),
    (20, "zero-size", _one(shape=[3, 0, 2], data_offsets=[0, 0], data=b""), ""),
    (
        20,
        "zero-size-between",
        _file({"a": _entry(), "b": _entry((0,), (8, 8)), "c": _entry(offsets=(8, 16))}, bytes(16)),
        "",
    ),
    (20, "no-tensors", _file({}), ""),
    (20, "only-metadata", _file({"__metadata__": {"k": "v"}}), ""),
    (20, "empty-name", _file({"": _entry()}, bytes(8)), ""),
    (20, "out-of-order", _text('{"b":{' + A.replace("0,8", "8,16") + '},"a":{' + A + "}}", bytes(16)), ""),
    (20, "header-length-unaligned", _text(PLAIN + " "), ""),
    (20, "64-dimensions", _one(shape=[1] * 63 + [2]), ""),
]


@pytest.mark.parametrize(("number", "name", "data", "code"), HOSTILE, ids=[f"{row[0]}-{row[1]}" for row in HOSTILE])
def test_hostile(number, name, data, code, tmp_path, sandbox):
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    outcome = sandbox.outcome(path, "read")
    assert (outcome.code, outcome.quick) == (code, True), outcome
    assert not code or outcome.file == str(path)


def _library_accepts(data):
    try:
        safetensors.deserialize(data)
    except safetensors.SafetensorError:
        return False
    return True


@pytest.mark.parametrize(("number", "name", "data", "code"), HOSTILE, ids=[f"{row[0]}-{row[1]}" for row in HOSTILE])
def test_never_looser_than_the_library(number, name, data, code):
    assert code or _library_accepts(data)


TYPED = [
    '{"k": {"type": "float64", "base64": ""}}',
    '{"k": {"type": "float64", "base64": "AAAA"}}',
    '{"k": {"type": "float64", "base64": "?"}}',
    '{"k": {"type": "O", "base64": "AAAAAAAAAAA="}}',
    '{"k": {"type": "(2,", "base64": ""}}',
    '{"k": {"type": "(1000000,1000000)f8", "base64": ""}}',
    '{"k": {"type": ["f8"], "base64": ""}}',
    '{"k": {"type": "dict", "items": [[[], 1]]}}',
    '{"k": {"type": "dict", "items": [1]}}',
    '{"k": {}}',
    "[]",
    "7",
    "no JSON",
    "[" * 100_000,
    '{"k":' * 100_000,
    '{"k":[' + "[]," * 1_500_000 + "[]]}",
]


@pytest.mark.parametrize("key", ["candle_convert.metadata", "candle_convert.files"])
@pytest.mark.parametrize("number", range(len(TYPED)))
def test_texts_that_are_not_our_metadata_stay_texts_18(key, number, tmp_path, sandbox):
    path = tmp_path / "x.safetensors"
    path.write_bytes(_file({"__metadata__": {key: TYPED[number]}}))
    outcome = sandbox.outcome(path)
    assert (outcome.code, outcome.quick) == ("", True), outcome
    assert cc.open(path).metadata == {key: TYPED[number]}


def test_header_over_the_limit_3(tmp_path, sandbox):
    path = tmp_path / "x.safetensors"
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", 100_000_001) + b"{")
        file.truncate(200_000_000)
    outcome = sandbox.outcome(path)
    assert (outcome.code, outcome.exit_code, outcome.quick) == ("E-LIMIT-HEADER", 6, True)
    assert "--limit" in outcome.hint
    with cc.limits(header="200MB"), pytest.raises(cc.FormatError, match="E-ST-JSON"):
        cc.open(path)


def test_the_message_says_what_is_missing_12(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(_one(bytes(5)))
    with pytest.raises(cc.FormatError, match="3 bytes of tensor data are missing") as caught:
        cc.open(path)
    assert caught.value.offset == path.stat().st_size
    assert "download" in caught.value.hint


# The constructor names that the library's own serializer takes; it can read F6 and write it only from bytes.
SERIALIZED = {dtype: dtype.torch for dtype in BY_SAFETENSORS.values() if dtype.torch is not None}
SHAPES = [(), (0,), (3, 0, 2), (1,), (8,), (4, 6, 8), (33, 5, 7), (1, 1, 1, 1, 4)]


def _values(dtype, shape):
    """Random bytes as a tensor, None for shapes that do not fill whole bytes; booleans are 0 and 1."""
    size = dtype.nbytes(int(np.prod(shape, dtype=int)))
    if size is None:
        return None
    data = np.random.default_rng(len(shape)).integers(0, 2 if dtype.kind == "bool" else 256, size, np.uint8).tobytes()
    return StoredTensor(dtype, shape, Held(data))


def _weights(dtype):
    made = {f"shape {shape}": _values(dtype, shape) for shape in SHAPES}
    return {name: tensor for name, tensor in made.items() if tensor is not None}


def test_dtypes_are_those_of_the_library():
    with pytest.raises(safetensors.SafetensorError, match="expected one of") as caught:
        safetensors.deserialize(_one(dtype="none"))
    assert set(re.findall("`([A-Z0-9_]+)`", str(caught.value))) == set(BY_SAFETENSORS)


@pytest.mark.parametrize("dtype", BY_SAFETENSORS.values(), ids=str)
def test_the_library_reads_what_we_write(dtype, tmp_path):
    weights = _weights(dtype)
    cc.save_file(weights, tmp_path / "x.safetensors", metadata={"who": "we"})
    read = dict(safetensors.deserialize((tmp_path / "x.safetensors").read_bytes()))
    assert {name: (entry["dtype"], tuple(entry["shape"]), bytes(entry["data"])) for name, entry in read.items()} == {
        name: (dtype.safetensors, tensor.shape, bytes(tensor.raw())) for name, tensor in weights.items()
    }
    with safe_open(tmp_path / "x.safetensors", "np") as file:
        assert set(file.keys()) == set(weights)
        assert file.metadata() == {"who": "we"}


@pytest.mark.parametrize("dtype", SERIALIZED, ids=str)
def test_we_read_what_the_library_writes(dtype, tmp_path):
    weights = {name: tensor for name, tensor in _weights(dtype).items() if dtype.bits >= 8 or tensor.shape}
    arrays = {name: np.frombuffer(bytes(tensor.raw()) + b"x", np.uint8) for name, tensor in weights.items()}
    specs = {
        name: safetensors.TensorSpec(
            dtype=SERIALIZED[dtype], data_ptr=arrays[name].ctypes.data, data_len=tensor.nbytes,
            shape=tensor.shape if dtype.bits >= 8 else (*tensor.shape[:-1], tensor.shape[-1] // 2),
        )
        for name, tensor in weights.items()
    }  # fmt: skip
    path = tmp_path / "x.safetensors"
    safetensors.serialize_file(specs, path, {"key": "ü", "format": "pt"})
    graph = cc.open(path)
    assert graph.metadata == {"key": "ü", "format": "pt"}
    assert {name: (tensor.dtype, tensor.shape, tensor.raw()) for name, tensor in graph.weights.items()} == {
        name: (dtype, tensor.shape, bytes(tensor.raw())) for name, tensor in weights.items()
    }


@pytest.mark.parametrize("name", ["F6_E2M3", "F6_E3M2", "F4"])
def test_sub_byte_types_read_from_bytes(name, tmp_path):
    dtype = BY_SAFETENSORS[name]
    data = bytes(range(0, 24 * dtype.bits // 8 * 7, 7))
    text = _file({"x": _entry((2, 12), (0, len(data)), name)}, data)
    assert _library_accepts(text)
    (tmp_path / "x.safetensors").write_bytes(text)
    tensor = cc.open(tmp_path / "x.safetensors")["x"]
    assert (tensor.dtype, tensor.raw()) == (dtype, data)
    assert tensor.numpy().shape == (2, 12)


def test_tensors_are_aligned_to_their_width(tmp_path):
    weights = {dtype.name: _values(dtype, (4, 3)) for dtype in BY_SAFETENSORS.values()}
    cc.save_file(weights, tmp_path / "x.safetensors")
    start = 8 + int.from_bytes((tmp_path / "x.safetensors").read_bytes()[:8], "little")
    assert start % 8 == 0
    for name, tensor in cc.open(tmp_path / "x.safetensors").weights.items():
        assert tensor.storage.offset % max(1, DTYPES[name].bits // 8) == 0


def test_same_bytes_whatever_the_order_and_as_the_library(tmp_path):
    weights = {f"{dtype} {name}": _values(dtype, (4, 6)) for dtype in SERIALIZED for name in "ba" if dtype.bits >= 8}
    arrays = {name: np.frombuffer(tensor.raw(), np.uint8) for name, tensor in weights.items()}
    specs = {
        name: safetensors.TensorSpec(
            dtype=tensor.dtype.torch, shape=(4, 6), data_ptr=arrays[name].ctypes.data, data_len=tensor.nbytes
        )
        for name, tensor in weights.items()
    }
    safetensors.serialize_file(specs, tmp_path / "0.safetensors", {"x": "1"})
    cc.save_file(weights, tmp_path / "1.safetensors", metadata={"x": "1"})
    cc.save_file(dict(reversed(weights.items())), tmp_path / "2.safetensors", metadata={"x": "1"})
    theirs, ours, again = ((tmp_path / f"{number}.safetensors").read_bytes() for number in range(3))
    assert ours == again == theirs


def test_metadata_is_written_in_order(tmp_path):
    pairs = {f"key {number}": str(number) for number in range(20)}
    cc.save_file({}, tmp_path / "1.safetensors", metadata=pairs)
    cc.save_file({}, tmp_path / "2.safetensors", metadata=dict(reversed(pairs.items())))
    assert (tmp_path / "1.safetensors").read_bytes() == (tmp_path / "2.safetensors").read_bytes()
    with safe_open(tmp_path / "1.safetensors", "np") as file:
        assert file.metadata() == pairs


def test_shards_are_read_as_transformers_reads_them(tmp_path):
    arrays = {f"layers.{number}.weight": np.full((16, 16), number, np.float32) for number in range(9)}
    cc.save_file(arrays, tmp_path / "one.safetensors", metadata={"format": "pt"})
    cc.convert(tmp_path / "one.safetensors", tmp_path / "out", to="safetensors", shard_nbytes=3000)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) == 5
    assert index["metadata"]["total_size"] == sum(array.nbytes for array in arrays.values())
    read = {}
    for shard in sorted(set(index["weight_map"].values())):
        with safe_open(tmp_path / "out" / shard, "np") as file:
            assert {name for name, where in index["weight_map"].items() if where == shard} == set(file.keys())
            read |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    assert all(np.array_equal(read[name], array) for name, array in arrays.items())
    assert cc.hash(tmp_path / "out") == cc.hash(tmp_path / "one.safetensors")
