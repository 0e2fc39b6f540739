"""npz and npy: hostile headers, and numpy as the oracle for both directions."""

import io
import json
import random
import struct
import zipfile
import zlib

import candle_convert as cc
import ml_dtypes
import numpy as np
import pytest
from candle_convert.convert.cli import run
from candle_convert.formats.containers.npy import header_bytes
from candle_convert.formats.npz import FORMAT
from candle_convert.runtime.dtype import DTYPES, U8
from candle_convert.runtime.format import ReadOptions
from candle_convert.runtime.source import Source
from candle_convert.runtime.storage import Region
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

GIB = 1 << 30
RIGHT = "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }"


def npy(text=RIGHT, data=bytes(16), version=(1, 0), length=None, magic=b"\x93NUMPY"):
    text = text.encode("latin-1") if isinstance(text, str) else text
    width = 2 if version == (1, 0) else 4
    return magic + bytes(version) + (len(text) if length is None else length).to_bytes(width, "little") + text + data


def saved(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def shape(text, data=bytes(16), dtype="<f8"):
    return npy(f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {text}, }}", data)


def descr(text, data=bytes(16)):
    return npy(f"{{'descr': {text}, 'fortran_order': False, 'shape': (2,), }}", data)


OBJECTS = saved(np.array([{}, []], dtype=object), allow_pickle=True)
STRUCTURE = saved(np.zeros(2, [("a", "<f4"), ("b", "<i4")]))
NESTED = saved(np.array([(1, {})], dtype=[("a", "<f4"), ("b", object)]), allow_pickle=True)

# number, id, the npy file's bytes, our error code ("" where it opens)
HOSTILE = [
    (71, "objects", OBJECTS, "E-NPZ-PICKLE"),
    (71, "objects-of-python-2", descr("'|O8'"), "E-NPZ-PICKLE"),
    (71, "objects-by-name", descr("'object'"), "E-NPZ-PICKLE"),
    (71, "structure", STRUCTURE, "E-NPZ-DTYPE"),
    (71, "structure-of-objects", NESTED, "E-NPZ-PICKLE"),
    (71, "array-in-array", descr("('<f8', (2,))"), "E-NPZ-DTYPE"),
    (71, "array-of-objects-in-array", descr("('|O', (2,))"), "E-NPZ-PICKLE"),
    (71, "text", saved(np.array(["ab", "c"])), "E-NPZ-DTYPE"),
    (71, "bytes", saved(np.array([b"ab", b"c"])), "E-NPZ-DTYPE"),
    (71, "dates", saved(np.array(["2020-01-01"], "M8[D]")), "E-NPZ-DTYPE"),
    (71, "time-spans", saved(np.array([1], "m8[ns]")), "E-NPZ-DTYPE"),
    (71, "long-double", saved(np.ones(2, np.longdouble)), "E-NPZ-DTYPE"),
    (71, "long-complex", saved(np.ones(2, np.clongdouble)), "E-NPZ-DTYPE"),
    (71, "void-of-3", saved(np.zeros(2, "V3")), "E-NPZ-DTYPE"),
    (71, "void-of-1", saved(np.zeros(2, "V1")), "E-NPZ-VOID"),
    (71, "unknown-code", descr("'<q8'"), "E-NPZ-DTYPE"),
    (71, "no-code", descr("'<<f8'"), "E-NPZ-HEADER"),
    (71, "code-that-is-a-call", descr("'f8'.__class__"), "E-NPZ-HEADER"),
    (71, "escaped-code", descr("'\\x4f'"), "E-NPZ-HEADER"),
    (71, "joined-code", descr("'' 'O'"), "E-NPZ-HEADER"),
    (72, "not-a-literal", npy("__import__('os').system('true')"), "E-NPZ-HEADER"),
    (72, "3000-parentheses", shape("(" * 3000 + ")" * 3000), "E-NPZ-HEADER"),
    (72, "3000-brackets", npy("[" * 3000), "E-NPZ-HEADER"),
    (72, "a-list", npy("[1, 2]"), "E-NPZ-HEADER"),
    (72, "empty", npy(""), "E-NPZ-HEADER"),
    (72, "not-closed", npy(RIGHT[:-1]), "E-NPZ-HEADER"),
    (72, "more-after-it", npy(RIGHT + " 1"), "E-NPZ-HEADER"),
    (72, "key-missing", npy("{'descr': '<f8', 'shape': (2,), }"), "E-NPZ-HEADER"),
    (72, "key-too-many", npy(RIGHT[:-1] + "'x': 'y'}"), "E-NPZ-HEADER"),
    (72, "64-KiB", npy(RIGHT.ljust(1 << 16) + "\n", version=(2, 0)), "E-NPZ-HEADER-LENGTH"),
    (72, "header-of-4-GiB", npy(version=(2, 0), length=(1 << 32) - 1), "E-NPZ-HEADER-LENGTH"),
    (72, "header-longer-than-the-file", npy(length=200), "E-NPZ-HEADER-LENGTH"),
    (72, "no-length", b"\x93NUMPY\1\0", "E-NPZ-HEADER-LENGTH"),
    (72, "many-quotes", npy("{" + "'" * 60000), "E-NPZ-HEADER"),
    (72, "many-keys", npy("{" + "'a':True," * 7000 + "}"), "E-NPZ-HEADER"),
    (72, "order-is-a-number", npy(RIGHT.replace("False", "0")), "E-NPZ-HEADER"),
    (73, "4-TiB", shape(f"({1 << 39},)"), "E-NPZ-SIZE"),
    (73, "2^63-elements", shape(f"({1 << 62}, 2)"), "E-NPZ-SHAPE"),
    (73, "2^64-elements-wrap", shape(f"({1 << 32}, {1 << 32})"), "E-NPZ-SHAPE"),
    (73, "zero-times-2^63", shape(f"(0, {1 << 62}, {1 << 62})", b""), "E-NPZ-SHAPE"),
    (73, "4300-digits", shape("(" + "9" * 4300 + ",)"), "E-NPZ-SHAPE"),
    (73, "65-dimensions", shape("(" + "1, " * 65 + ")", bytes(8)), "E-NPZ-SHAPE"),
    (73, "20000-dimensions", shape("(" + "1, " * 20000 + ")", bytes(8)), "E-NPZ-SHAPE"),
    (73, "one-element-short", npy(data=bytes(8)), "E-NPZ-SIZE"),
    (73, "one-byte-long", npy(data=bytes(17)), "E-NPZ-SIZE"),
    (73, "two-arrays", saved(np.arange(3)) * 2, "E-NPZ-SIZE"),
    (74, "negative-dimension", shape("(-2,)"), "E-NPZ-SHAPE"),
    (74, "two-negative-dimensions", shape("(-1, -2)"), "E-NPZ-SHAPE"),
    (74, "bool-dimension", shape("(True, 2)"), "E-NPZ-SHAPE"),
    (74, "float-dimension", shape("(2.0,)"), "E-NPZ-SHAPE"),
    (74, "hexadecimal-dimension", shape("(0x2,)"), "E-NPZ-SHAPE"),
    (74, "dimension-with-underscore", shape("(1_0,)"), "E-NPZ-SHAPE"),
    (74, "no-tuple", shape("(2)"), "E-NPZ-SHAPE"),
    (74, "only-a-comma", shape("(,)"), "E-NPZ-SHAPE"),
    (74, "a-list", shape("[2]"), "E-NPZ-HEADER"),
    (74, "a-number", shape("2"), "E-NPZ-HEADER"),
    (74, "key-twice", npy(RIGHT[:-1] + "'shape': (2,)}"), "E-NPZ-HEADER"),
    (75, "fortran", npy(RIGHT.replace("False", "True")), ""),
    (75, "big-endian", descr("'>f8'"), ""),
    (75, "python-2", shape("(2L,)"), ""),
    (75, "other-quotes-and-order", npy('{"shape":(2,),"fortran_order":False,"descr":"<f8"}'), ""),
    (75, "version-2", npy(version=(2, 0)), ""),
    (75, "version-3", npy(version=(3, 0)), ""),
    (76, "version-4", npy(version=(4, 0)), "E-NPZ-VERSION"),
    (76, "version-1.1", npy(version=(1, 1)), "E-NPZ-VERSION"),
    (76, "version-0", npy(version=(0, 0)), "E-NPZ-VERSION"),
]


def zipped(files, compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return file.getvalue()


def zip_of(data):
    return zipped({"good.npy": saved(np.zeros(3)), "folder/bad.npy": data}, zipfile.ZIP_DEFLATED)


@pytest.mark.parametrize(("number", "name", "data", "code"), HOSTILE, ids=[f"{row[0]}-{row[1]}" for row in HOSTILE])
@pytest.mark.parametrize(("suffix", "made"), [(".npy", bytes), (".npz", zip_of)], ids=["npy", "npz"])
def test_hostile(number, name, data, code, suffix, made, tmp_path, sandbox):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(made(data))
    outcome = sandbox.outcome(path)
    assert (outcome.code, outcome.quick) == (code, True), outcome
    if code:
        assert (outcome.file, outcome.offset is None, bool(outcome.hint)) == (str(path), False, True), outcome
        assert suffix == ".npy" or "'folder/bad'" in outcome.detail


BAD_ARCHIVES = [
    (76, "bad-magic", zipped({"good.npy": saved(np.zeros(3)), "x.npy": npy(magic=b"\x93NUMPX")}), "E-NPZ-MAGIC"),
    (76, "no-magic", zipped({"x.npy": b""}), "E-NPZ-MAGIC"),
    (74, "one-name-twice", zipped({"x.npy": saved(np.zeros(3)), "x": saved(np.zeros(3))}), "E-NPZ-TWICE"),
    (71, "objects-without-suffix", zipped({"x.npy": saved(np.zeros(3)), "y": OBJECTS}), "E-NPZ-PICKLE"),
    (72, "metadata-no-json", zipped({"x.npy": saved(np.zeros(3)), "__metadata__.json": b"{"}), "E-NPZ-METADATA"),
    (72, "metadata-no-strings", zipped({"x.npy": saved(np.zeros(3)), "__metadata__.json": b'{"a": 1}'}), "E-NPZ-METADATA"),
    (72, "metadata-nested", zipped({"__metadata__.json": b"[" * 100_000}), "E-LIMIT-DEPTH"),
    (77, "bomb", zipped({"x.npy": saved(np.zeros(1 << 20))}, zipfile.ZIP_DEFLATED), "E-ZIP-RATIO"),
    (20, "empty-archive", zipped({}), ""),
    (20, "other-member", zipped({"x.npy": saved(np.zeros(3)), "readme.txt": b"text"}), ""),
]


@pytest.mark.parametrize(("number", "name", "data", "code"), BAD_ARCHIVES, ids=[f"{row[0]}-{row[1]}" for row in BAD_ARCHIVES])
def test_hostile_archives(number, name, data, code, tmp_path, sandbox):
    path = tmp_path / "x.npz"
    path.write_bytes(data)
    outcome = sandbox.outcome(path)
    assert (outcome.code, outcome.quick) == (code, True), outcome
    if code:
        assert outcome.hint


def patterns(dtype, *lengths):
    """An array of random bits (for bool, of random truth)."""
    dtype = np.dtype(dtype)
    data = np.random.default_rng(sum(lengths)).integers(0, 256, int(np.prod(lengths)) * dtype.itemsize, dtype=np.uint8)
    return ((data > 127) if dtype.kind == "b" else data.view(dtype)).reshape(lengths)


NUMERIC = ["?", *"bBhHiIlLqQ", "e", "f", "d", "F", "D"]
LENGTHS = [(), (0,), (1,), (7,), (3, 4), (1, 5), (4, 1, 3), (2, 0, 3), (2, 3, 4, 5)]
ORDERS = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "big-endian": lambda array: array.astype(array.dtype.newbyteorder(">")),
    "big-endian-columns": lambda array: np.asfortranarray(array.astype(array.dtype.newbyteorder(">"))),
    "transposed": lambda array: np.ascontiguousarray(array.T).T,
}


def everything():
    plain = {f"{code}/{lengths}": patterns(code, *lengths) for code in NUMERIC for lengths in LENGTHS}
    return {f"{name}/{order}": change(array) for name, array in plain.items() for order, change in ORDERS.items()}


def assert_same(array, ours):
    """The bits, in rows and little-endian."""
    plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    assert (ours.dtype.as_numpy(), ours.shape) == (array.dtype.newbyteorder("="), array.shape)
    assert bytes(ours.raw()) == plain.tobytes()
    assert b"".join(bytes(part) for part in ours.chunks(64)) == plain.tobytes()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_writes(save, tmp_path):
    arrays = everything()
    save(tmp_path / "x.npz", **arrays)
    graph = cc.open(tmp_path / "x.npz")
    assert (graph.format, list(graph.weights), graph.notes) == ("npz", list(arrays), [])
    for name, array in arrays.items():
        assert_same(array, graph[name])
    assert list(FORMAT.check(Source(tmp_path / "x.npz"), ReadOptions())) == []
    assert cc.scan(tmp_path / "x.npz").exit_code == 0


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("order", ORDERS)
def test_single_arrays(version, order, tmp_path):
    array = ORDERS[order](patterns("f", 5, 6))
    with open(tmp_path / "an array.npy", "wb") as file:
        np.lib.format.write_array(file, array, version)
    graph = cc.open(tmp_path / "an array.npy")
    assert (graph.format, list(graph)) == ("npy", ["an array"])
    assert_same(array, graph["an array"])


def test_reading_is_lazy_and_in_place(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.arange(6.0).reshape(2, 3))
    tensor = cc.open(tmp_path / "x.npz")["x"]
    assert isinstance(tensor.storage, Region)
    assert tensor[1:].numpy().tolist() == [[3, 4, 5]]


def test_compressed_columns_are_inflated_once(tmp_path):
    array = np.asfortranarray(patterns("H", 700, 900))
    np.savez_compressed(tmp_path / "x.npz", x=array)
    tensor = cc.open(tmp_path / "x.npz")["x"]
    assert not tensor.storage.sequential
    for rows in ((600, 700), (0, 100), (300, 301)):
        assert (tensor[slice(*rows)].numpy() == array[slice(*rows)]).all()


ML = [name for name in DTYPES if DTYPES[name].bits in (8, 16) and hasattr(ml_dtypes, DTYPES[name].numpy or "")]


@pytest.mark.parametrize("name", ML)
@pytest.mark.parametrize("order", ["rows", "columns"])
def test_what_ml_dtypes_writes(name, order, tmp_path):
    dtype = DTYPES[name]
    array = ORDERS[order](patterns(np.uint8 if dtype.bits == 8 else np.uint16, 3, 4)).view(dtype.as_numpy())
    np.savez(tmp_path / "x.npz", x=array)
    kept = name in ("bf16", "f8_e5m2")
    if not kept:
        with pytest.raises(cc.UnsupportedError) as caught:
            cc.open(tmp_path / "x.npz")
        assert (caught.value.code, f"{name}" in caught.value.hint) == ("E-NPZ-VOID", True)
    graph = FORMAT.read(Source(tmp_path / "x.npz"), ReadOptions(void_dtype=None if kept else name))
    assert_same(array, graph["x"])


def test_big_endian_bf16(tmp_path):
    array = patterns(np.uint16, 9).view(ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", array.astype(array.dtype.newbyteorder(">")))
    assert_same(array, cc.open(tmp_path / "x.npy")["x"])


def test_void_is_what_the_user_says(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.ones(3, ml_dtypes.float8_e4m3fn))
    assert run(["convert", str(tmp_path / "x.npy"), str(tmp_path / "out.safetensors")]) == 4
    assert "--npz-void" in capsys.readouterr().err
    assert run(["convert", str(tmp_path / "x.npy"), str(tmp_path / "out.safetensors"), "--npz-void", "f8_e4m3"]) == 0
    assert cc.open(tmp_path / "out.safetensors")["x"].dtype.name == "f8_e4m3"
    with pytest.raises(cc.UsageError):
        FORMAT.read(Source(write(tmp_path, {"x": np.zeros(2, "V1")})), ReadOptions(void_dtype="f32"))


def write(folder, arrays):
    np.savez(folder / "in.npz", **arrays)
    return folder / "in.npz"


def whole_byte_tensors():
    found = {}
    for dtype in sorted(FORMAT.dtypes, key=lambda dtype: dtype.name):
        for lengths in LENGTHS:
            plain = patterns(bool if dtype.name == "bool" else f"u{max(1, dtype.bits // 8)}" if dtype.bits <= 64 else "D", *lengths)
            found[f"{dtype.name}/{lengths}"] = plain.view(dtype.as_numpy()).reshape(lengths)
    return found


def test_what_we_write(tmp_path):
    arrays = whole_byte_tensors()
    assert {array.dtype for array in arrays.values()} >= {np.dtype(code) for code in NUMERIC}
    metadata = {"a": "text", "numbers": [1, 2.5, None], "bytes": b"\xff"}
    for name in ("x.npz", "again.npz"):
        cc.save_file(arrays, tmp_path / name, metadata=metadata)
    assert (tmp_path / "x.npz").read_bytes() == (tmp_path / "again.npz").read_bytes()
    with np.load(tmp_path / "x.npz") as theirs:
        assert theirs.files[:-1] == list(arrays)
        for name, array in arrays.items():
            assert theirs[name].shape == array.shape
            assert theirs[name].tobytes() == array.tobytes()
            assert array.dtype.kind == "V" or array.dtype.isbuiltin != 1 or theirs[name].dtype == array.dtype
    with zipfile.ZipFile(tmp_path / "x.npz") as archive:
        assert archive.testzip() is None
        for name, array in arrays.items():
            assert array.dtype.str == "<f1" or archive.read(f"{name}.npy") == saved(array)
    graph = cc.open(tmp_path / "x.npz")
    assert graph.metadata == metadata
    for name, array in arrays.items():
        assert_same(array, graph[name])
        assert not graph[name].nbytes or graph[name].storage.offset % 64 == 0


def test_conversions_of_several_chunks(tmp_path):
    arrays = {"rows": patterns("f", 1500, 900), "columns": np.asfortranarray(patterns(">d", 700, 900))}
    arrays["bf16"] = patterns("H", 3 << 20).view(ml_dtypes.bfloat16)
    np.savez_compressed(tmp_path / "in.npz", **arrays)
    for source, target in (("in.npz", "x.safetensors"), ("x.safetensors", "x.npz"), ("in.npz", "y.npz")):
        cc.convert(tmp_path / source, tmp_path / target, verify="full", threads=2)
        graph = cc.open(tmp_path / target)
        for name, array in arrays.items():
            assert bytes(graph[name].raw()) == np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    for name in ("x.npz", "y.npz"):
        with zipfile.ZipFile(tmp_path / name) as archive:
            assert archive.testzip() is None


def test_nothing_extra_is_written(tmp_path):
    cc.save_file({"a/b.c": np.zeros(3)}, tmp_path / "x.npz")
    with zipfile.ZipFile(tmp_path / "x.npz") as archive:
        assert archive.namelist() == ["a/b.c.npy"]
    cc.save_file({}, tmp_path / "empty.npz")
    assert np.load(tmp_path / "empty.npz").files == []
    assert len(cc.open(tmp_path / "empty.npz")) == 0


def test_attachments_travel_along(tmp_path):
    (tmp_path / "model").mkdir()
    cc.save_file({"x": np.zeros(3)}, tmp_path / "model" / "model.safetensors")
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": "llama"}))
    cc.convert(tmp_path / "model", tmp_path / "x.npz")
    held = cc.open(tmp_path / "x.npz").attachments["config.json"]
    assert json.loads(bytes(held.read(0, held.nbytes))) == {"model_type": "llama"}
    assert np.load(tmp_path / "x.npz")["x"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["../x", "/x", "a\\b", "a\0b"])
def test_names_that_an_archive_cannot_hold(name, tmp_path):
    with pytest.raises(cc.UnsupportedError) as caught:
        cc.save_file({name: np.zeros(3)}, tmp_path / "x.npz")
    assert (caught.value.code, list(tmp_path.iterdir())) == ("E-ZIP-NAME", [])


@pytest.mark.parametrize("name", ["a b", "grüße", "", "a\nb", "..", "x.npy", "weight:0", "a//b", "\x1b[31m"])
def test_odd_names(name, tmp_path):
    cc.save_file({name: np.arange(3)}, tmp_path / "x.npz")
    assert list(cc.open(tmp_path / "x.npz")) == [name]
    assert np.load(tmp_path / "x.npz")[f"{name}.npy"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["f4", "i4", "q8_0", "c32"])
def test_what_npz_cannot_hold(name):
    assert DTYPES[name] not in FORMAT.dtypes


def test_shards_are_refused(tmp_path):
    cc.save_file({"a": np.zeros(3), "b": np.zeros(3)}, tmp_path / "x.safetensors")
    with pytest.raises(cc.UnsupportedError) as caught:
        cc.convert(tmp_path / "x.safetensors", tmp_path / "x.npz", shard_tensors=1)
    assert caught.value.code == "E-NPZ-SHARDS"


def codes(path):
    return [(finding.code, finding.severity) for finding in FORMAT.scan(Source(path), ReadOptions())]


def test_scan_and_check(tmp_path):
    path = tmp_path / "x.npz"
    path.write_bytes(zipped({"x.npy": saved(np.zeros(3)), "o.npy": OBJECTS, "hidden": NESTED, "readme.txt": b"text"}))
    assert codes(path) == [("E-NPZ-PICKLE", "danger"), ("E-NPZ-PICKLE", "danger"), ("W-NPZ-MEMBER", "info")]
    assert (cc.scan(path).exit_code, run(["scan", str(path)])) == (5, 5)
    path.write_bytes(zipped({"x.npy": STRUCTURE}))
    assert codes(path) == [("E-NPZ-DTYPE", "error")]
    assert cc.scan(path).exit_code in (3, 4)
    data = bytearray(zipped({"x.npy": saved(np.zeros(3))}))
    data[data.find(b"\x93NUMPY") + 130] ^= 1
    path.write_bytes(data)
    cc.open(path)
    assert [(finding.code, finding.member) for finding in FORMAT.check(Source(path), ReadOptions())] == [("E-ZIP-CRC", "x.npy")]


def test_a_note_on_what_is_left_out(tmp_path):
    (tmp_path / "x.npz").write_bytes(zipped({"x.npy": saved(np.zeros(3)), "readme.txt": b"text"}))
    assert [(note.code, "readme.txt" in note.message) for note in cc.open(tmp_path / "x.npz").notes] == [("W-NPZ-MEMBER", True)]


@pytest.mark.parametrize(
    ("files", "ours"),
    [
        ({"x.npy": b"", "readme.txt": b""}, True),
        ({"readme.txt": b"", "x.npy": b""}, True),
        ({"folder/": b"", "folder/x.npy": b""}, True),
        ({"__metadata__.json": b"{}"}, True),
        ({}, True),
        ({"readme.txt": b"text"}, False),
        ({"readme.txt": b"about x.npy"}, False),
        ({"model/data.pkl": b"x.npy"}, False),
    ],
)
def test_an_archive_is_known_by_what_is_in_it(files, ours, tmp_path):
    (tmp_path / "x.zip").write_bytes(zipped(files))
    assert FORMAT.sniff(Source(tmp_path / "x.zip")) is ours


def test_large_files_are_only_looked_at(tmp_path):
    """A tensor of 5 GiB in a file of holes: opened, sliced and scanned without being read."""
    header = npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({5 * GIB // 4},), }}", b"")
    crc, size = zlib.crc32(header), len(header) + 5 * GIB
    extra = struct.pack("<HHQQ", 1, 16, size, size)
    full = 0xFFFFFFFF
    local = struct.pack("<4s5H3I2H5s20s", b"PK\3\4", 45, 0, 0, 0, 33, crc, full, full, 5, 20, b"x.npy", extra)
    central = struct.pack("<4s6H3I5H2I5s20s", b"PK\1\2", 45, 45, 0, 0, 0, 33, crc, full, full, 5, 20, 0, 0, 0, 0, 0, b"x.npy", extra)
    start = len(local) + size
    end = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, len(central), start)
    end += struct.pack("<4sIQI", b"PK\6\7", 0, start + len(central), 1) + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(central), full, 0)
    with open(tmp_path / "x.npz", "wb") as file:
        file.write(local + header)
        file.seek(start)
        file.write(central + end)
    tensor = cc.open(tmp_path / "x.npz")["x"]
    assert tensor.shape == (5 * GIB // 4,)
    assert tensor[-3:].numpy().tolist() == [0, 0, 0]
    with zipfile.ZipFile(tmp_path / "x.npz") as archive, archive.open("x.npy") as member:
        assert np.lib.format.read_magic(member) == (1, 0)
        assert np.lib.format.read_array_header_1_0(member)[0] == tensor.shape


def opened(path):
    """What a file opens as, None where it is refused with one of our errors."""
    try:
        graph = cc.open(path)
        return {name: (tensor.dtype, tensor.shape, bytes(tensor.raw())) for name, tensor in graph.weights.items()}
    except cc.Error as error:
        assert error.file == str(path)
        assert error.hint
        return None


def samples():
    compressed = io.BytesIO()
    np.savez_compressed(compressed, a=np.asfortranarray(patterns("f", 3, 4)), b=patterns(">d", 3))
    return [saved(patterns("D", 2, 3)), zipped({"x.npy": saved(patterns("e", 5)), "y": b"text"}), compressed.getvalue()]


@pytest.mark.parametrize("number", range(3))
def test_truncated_and_changed_anywhere(number, tmp_path):
    data, path = samples()[number], tmp_path / ("x.npz" if number else "x.npy")
    for length in range(len(data)):
        path.write_bytes(data[:length])
        assert opened(path) is None, length
    dice = random.Random(number)
    for _ in range(400):
        changed = bytearray(data)
        for _ in range(dice.choice((1, 1, 3))):
            changed[dice.randrange(len(data))] = dice.randrange(256)
        path.write_bytes(changed)
        opened(path)


WORDS = ["{", "}", "(", ")", "[", "]", ",", ":", " ", "\n", "'", '"', "-", "1", "2", "2L", "03", "True", "False", "None", "'descr'", "'shape'"]
WORDS += ["'fortran_order'", "'<f8'", "'>f8'", "'|b1'", "'O'", "'<U4'", "(2,)", "(1, 2)", "()", "(2)", "'descr': '<f8'", "'shape': (2,)"]
WORDS += ["\\", "é", "#"]
HEADERS = st.one_of(
    st.lists(st.sampled_from(WORDS), max_size=12).map("".join),
    st.permutations(["'descr': '<f8'", "'fortran_order': False", "'shape': (2,)"]).map(lambda items: "{" + ", ".join(items) + "}"),
    st.builds(lambda where, what: RIGHT[:where] + what + RIGHT[where:], st.integers(0, len(RIGHT)), st.sampled_from(WORDS)),
    st.builds(lambda where, size: RIGHT[:where] + RIGHT[where + size :], st.integers(0, len(RIGHT)), st.integers(1, 9)),
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=HEADERS, version=st.sampled_from([(1, 0), (2, 0), (3, 0)]))
def test_headers_mean_what_numpy_takes_them_for(text, version, tmp_path):
    """A header that we accept is one that numpy accepts, and it says the same."""
    path = tmp_path / "x.npy"
    path.write_bytes(npy(text, version=version))
    ours = opened(path)
    if ours is not None:
        theirs = np.load(path, allow_pickle=False)
        assert_same(theirs, cc.open(path)["x"])


def test_headers_are_numpys_to_the_byte():
    for lengths in (*LENGTHS, (10**6, 3), (1,) * 30, (0,)):
        expected = io.BytesIO()
        np.lib.format.write_array_header_1_0(expected, {"descr": "|u1", "fortran_order": False, "shape": lengths})
        assert header_bytes(U8, lengths) == expected.getvalue()
