"""npz and npy: numpy as the oracle for both directions."""

import io
import json
import struct
import zipfile
import zlib

import candle_convert as cc
import ml_dtypes
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.formats.containers.npy import header_bytes
from candle_convert.formats.npz import FORMAT
from candle_convert.runtime.contract.format import ReadOptions
from candle_convert.runtime.tensor.dtype import DTYPES, U8
from candle_convert.runtime.tensor.file import Source
from candle_convert.runtime.tensor.storage import Region
from candle_convert.tests.builders.npy_files import (
    NESTED,
    OBJECTS,
    STRUCTURE,
    assert_same,
    npy,
    patterns,
    saved,
    zipped,
)

GIB = 1 << 30
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
            plain = patterns(
                bool if dtype.name == "bool" else f"u{max(1, dtype.bits // 8)}" if dtype.bits <= 64 else "D", *lengths
            )
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
    assert [(finding.code, finding.member) for finding in FORMAT.check(Source(path), ReadOptions())] == [
        ("E-ZIP-CRC", "x.npy")
    ]


def test_a_note_on_what_is_left_out(tmp_path):
    (tmp_path / "x.npz").write_bytes(zipped({"x.npy": saved(np.zeros(3)), "readme.txt": b"text"}))
    assert [(note.code, "readme.txt" in note.message) for note in cc.open(tmp_path / "x.npz").notes] == [
        ("W-NPZ-MEMBER", True)
    ]


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
    central = struct.pack(
        "<4s6H3I5H2I5s20s", b"PK\1\2", 45, 45, 0, 0, 0, 33, crc, full, full, 5, 20, 0, 0, 0, 0, 0, b"x.npy", extra
    )
    start = len(local) + size
    end = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, len(central), start)
    end += struct.pack("<4sIQI", b"PK\6\7", 0, start + len(central), 1) + struct.pack(
        "<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(central), full, 0
    )
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


def test_headers_are_numpys_to_the_byte():
    for lengths in (*LENGTHS, (10**6, 3), (1,) * 30, (0,)):
        expected = io.BytesIO()
        np.lib.format.write_array_header_1_0(expected, {"descr": "|u1", "fortran_order": False, "shape": lengths})
        assert header_bytes(U8, lengths) == expected.getvalue()
