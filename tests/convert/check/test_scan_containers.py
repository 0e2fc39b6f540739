"""Scanning looks into what is packed: compressed pickles, joblib's arrays between opcodes, tar and Keras archives,
HDF5, skops, TensorFlow.

joblib, h5py and lz4 write the files.
"""

import base64
import bz2
import gzip
import io
import json
import lzma
import marshal
import os
import pickle
import struct
import tarfile
import zipfile
import zlib

import candle_convert as cc
import h5py
import joblib
import lz4.frame
import numpy as np
import pytest
import torch
from candle_convert.convert.cli.main import run


class Evil:
    """Runs a command when Python's or joblib's loader meets it."""

    def __reduce__(self):
        return os.system, ("echo",)


ARRAYS = {
    "numbers": np.arange(3000.0).reshape(50, 60),
    "fortran": np.asfortranarray(np.arange(12, dtype=np.int16).reshape(3, 4)),
    "big": np.arange(5, dtype=">f4"),
    "empty": np.zeros((0, 3)),
    "scalar": np.array(3.0),
    "fields": np.zeros(4, [("left", "i8"), ("pair", "f4", (2,)), ("deep", [("x", "u1"), ("y", "S3")])]),
    "text": np.array(["abc", "d"]),
    "moments": np.array(["2020-01-01"], "M8[D]"),
    "objects": np.array([1, "two", None, {"three": 4}], dtype=object),
    "records": np.array([(1, "x")], [("a", "i4"), ("b", "O")]),
}
COMPRESSIONS = (0, ("zlib", 1), ("zlib", 9), ("gzip", 3), ("bz2", 3), ("xz", 3), ("lzma", 3), ("lz4", 3))
PACKERS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zlib": zlib.compress,
    "lz4": lz4.frame.compress,
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
    "small lzma": lambda data: lzma.compress(
        data, lzma.FORMAT_ALONE, filters=[{"id": lzma.FILTER_LZMA1, "dict_size": 4096}]
    ),
    "old joblib": lambda data: b"ZF" + hex(len(data)).ljust(19).encode() + zlib.compress(data),
    "many members": lambda data: b"".join(gzip.compress(data[at : at + 7]) for at in range(0, len(data), 7)),
    "twice": lambda data: gzip.compress(bz2.compress(data)),
}


def worst(path, **options):
    return cc.scan(path, **options).exit_code


@pytest.mark.parametrize("compress", COMPRESSIONS, ids=str)
def test_joblib_in_every_compression(compress, tmp_path):
    path = tmp_path / "model.joblib"
    joblib.dump(ARRAYS, path, compress=compress)
    assert joblib.load(path).keys() == ARRAYS.keys()
    assert worst(path) == 0, cc.scan(path).table()
    for name, value in ARRAYS.items():
        joblib.dump([value, Evil(), value], path, compress=compress)
        found = cc.scan(path)
        assert found.exit_code == 5, name
        assert any("system" in finding.message for finding in found.findings), name
    joblib.dump({"x": np.array([1, Evil()], dtype=object)}, path, compress=compress)
    assert worst(path) == 5


@pytest.mark.parametrize("protocol", range(6))
def test_joblib_in_every_protocol(protocol, tmp_path):
    path = tmp_path / "m.pkl"
    joblib.dump(list(ARRAYS.values()), path, protocol=protocol)
    assert worst(path) == 0, cc.scan(path).table()
    joblib.dump([*ARRAYS.values(), Evil()], path, protocol=protocol)
    assert worst(path) == 5


def test_bytes_of_an_array_that_are_opcodes(tmp_path):
    """What joblib passes over, pickle.load runs; and what joblib runs lies behind it."""
    evil, path = pickle.dumps(Evil(), 2)[2:], tmp_path / "m.pkl"

    def written(array, data):
        wrapper = joblib.numpy_pickle.NumpyArrayWrapper(
            np.ndarray, array.shape, "C", array.dtype, numpy_array_alignment_bytes=None
        )
        path.write_bytes(pickle.dumps(wrapper, 2)[:-1] + data + b".")

    written(np.zeros(8, np.uint8), b"\0" * 8)
    assert worst(path) == 0
    written(np.frombuffer(evil, np.uint8), evil)
    assert np.array_equal(joblib.load(path), np.frombuffer(evil, np.uint8))
    assert worst(path) == 5
    written(np.zeros(2, object), pickle.dumps(Evil(), 2))
    assert worst(path) == 5
    written(np.zeros(2, object), pickle.dumps([1, 2], 2))
    assert worst(path) == 0
    path.write_bytes(path.read_bytes().replace(b"\x02\0\0\0O8", b"\x02\0\0\0f8"))
    assert worst(path) == 5  # a dtype that says it holds objects, and is a number's


def test_a_joblib_file_is_no_checkpoint(tmp_path, capsys):
    joblib.dump(ARRAYS, tmp_path / "m.joblib")
    assert run(["convert", str(tmp_path / "m.joblib"), str(tmp_path / "m.npz")]) == 4
    assert "E-PKL-JOBLIB" in capsys.readouterr().err


@pytest.mark.parametrize("packer", PACKERS)
def test_compressed_pickles(packer, tmp_path):
    pack = PACKERS[packer]
    for name in ("m.pkl.gz", "m.joblib", "m", "model.safetensors"):
        (tmp_path / name).write_bytes(pack(pickle.dumps(Evil())))
        assert worst(tmp_path / name) == 5, name
        (tmp_path / name).write_bytes(pack(pickle.dumps({"a": 1})))
        assert worst(tmp_path / name) == 0 or name.endswith(".safetensors"), cc.scan(tmp_path / name).table()
        (tmp_path / name).unlink()


@pytest.mark.parametrize("packer", [name for name in PACKERS if name != "many members"])
def test_a_part_of_a_compressed_file_is_never_clean(packer, tmp_path):
    data = PACKERS[packer](pickle.dumps(list(range(999))))
    path = tmp_path / "m.bin"
    for length in (*range(22, 60), *range(60, len(data), 31), len(data) - 1):
        path.write_bytes(data[:length])
        assert worst(path) != 0, length
    path.write_bytes(data + b"more")
    assert worst(path) != 0


@pytest.mark.parametrize("packer", ["gz", "bz2", "xz", "zlib", "lz4", "lzma"])
def test_a_bomb_ends_soon(packer, tmp_path):
    path = tmp_path / "m.pkl"
    path.write_bytes(PACKERS[packer](bytes(40_000_000)))
    found = cc.scan(path)
    assert found.exit_code == 6
    with cc.limits(header=1_000_000, zip_ratio=10**6):
        assert worst(path) == 6


def test_archives_deep_within_archives(tmp_path):
    data = pickle.dumps({"a": 1})
    for depth in range(9):
        (tmp_path / "m").write_bytes(data)
        assert worst(tmp_path / "m") == (0 if depth <= 4 else 6), depth
        data = gzip.compress(data)


def tarred(members, mode="w"):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        folder = tarfile.TarInfo("./")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_nemo_and_other_tars(mode, tmp_path):
    file = io.BytesIO()
    torch.save({"w": torch.ones(3)}, file)
    clean = {"./model_config.yaml": b"a: 1\n", "./model_weights.ckpt": file.getvalue()}
    path = tmp_path / "m.nemo"
    path.write_bytes(tarred(clean, mode))
    assert worst(path) == 0, cc.scan(path).table()
    for name, data in (
        ("./a.pkl", pickle.dumps(Evil())),
        ("./b", zlib.compress(pickle.dumps(Evil()))),
        ("./c.keras", keras(LAMBDA)),
    ):
        path.write_bytes(tarred({**clean, name: data}, mode))
        assert worst(path) == 5, name


CODE = base64.b64encode(marshal.dumps((lambda x: x).__code__)).decode()
LAMBDA = {
    "module": "keras.layers",
    "class_name": "Lambda",
    "config": {
        "name": "l",
        "function": {"class_name": "__lambda__", "config": {"code": CODE, "defaults": None, "closure": None}},
    },
}
LEGACY = {
    "class_name": "Lambda",
    "config": {"name": "l", "function": [CODE, None, None], "function_type": "lambda", "module": "m"},
}
IMPORT = {"module": "os", "class_name": "function", "config": "system", "registered_name": "function"}
BUILTIN = {"module": "builtins", "class_name": "eval", "config": {}}
WRITING = {"class_name": "TFOpLambda", "config": {"name": "w", "function": "io.write_file"}}
TORCH = {"module": "keras.src.utils.torch_utils", "class_name": "TorchModuleWrapper", "config": {"module": "x"}}
DENSE = {
    "module": "keras.layers",
    "class_name": "Dense",
    "config": {
        "units": 3,
        "activation": {"module": "builtins", "class_name": "function", "config": "relu", "registered_name": "function"},
    },
}
CODE_LAYERS = {
    "lambda": LAMBDA,
    "legacy": LEGACY,
    "import": IMPORT,
    "builtin": BUILTIN,
    "operator": WRITING,
    "torch": TORCH,
}


def model(layer):
    return {
        "module": "keras",
        "class_name": "Functional",
        "config": {"name": "m", "layers": [DENSE, layer]},
        "registered_name": "Functional",
    }


def hdf5(layer, encode=json.dumps, **options):
    file = io.BytesIO()
    with h5py.File(file, "w", **options) as made:
        made.attrs["model_config"] = encode(model(layer))
        made["w"] = np.random.default_rng(0).normal(size=(64, 64))
    return file.getvalue()


def keras(layer, method=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("metadata.json", '{"keras_version": "3.8.0"}')
        archive.writestr("config.json", json.dumps(model(layer)))
        archive.writestr("model.weights.h5", hdf5(DENSE))
    return file.getvalue()


def escaped(value):
    """JSON with every letter of names written as an escape."""
    text = json.dumps(value)
    for word in ("Lambda", "__lambda__", "class_name", "module", "os", "TFOpLambda", "eval"):
        text = text.replace(f'"{word}"', '"' + "".join(f"\\u{ord(c):04X}" for c in word) + '"')
    return text


@pytest.mark.parametrize("layer", CODE_LAYERS)
def test_code_in_keras_models(layer, tmp_path):
    layer = CODE_LAYERS[layer]
    files = {
        "a.keras": keras(layer),
        "b.keras": keras(layer, zipfile.ZIP_DEFLATED),
        "c.h5": hdf5(layer),
        "d.h5": hdf5(layer, userblock_size=2048),
        "e.hdf5": hdf5(layer, lambda value: np.bytes_(json.dumps(value))),
        "f.h5": hdf5(layer, escaped),
        "model.json": json.dumps(model(layer)).encode(),
        "g.h5": hdf5(layer, lambda value: json.dumps({"pad": "x" * 300_000, **value}), libver="latest"),
        "h.json": escaped(model(layer)).encode(),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        found = cc.scan(tmp_path / name)
        assert found.exit_code == 5, name
        assert any(finding.code == "E-SCAN-KERAS" for finding in found.findings), name
        (tmp_path / name).unlink()


def test_models_of_keras_without_code_are_clean(tmp_path):
    files = {
        "a.keras": keras(DENSE),
        "b.keras": keras(DENSE, zipfile.ZIP_DEFLATED),
        "c.h5": hdf5(DENSE),
        "d.h5": hdf5(DENSE, escaped),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "model.json").write_text(json.dumps({"modelTopology": model(DENSE)}))
    assert worst(tmp_path) == 0, cc.scan(tmp_path).table()


def test_a_configuration_that_is_too_long_is_not_clean(tmp_path):
    (tmp_path / "m.h5").write_bytes(hdf5({"class_name": "Dense", "config": {"name": "x" * 5_000_000}}))
    assert worst(tmp_path / "m.h5") != 0


def test_skops(tmp_path):
    def saved(module, name, loader):
        with zipfile.ZipFile(tmp_path / "m.skops", "w") as archive:
            node = {"__class__": name, "__module__": module, "__loader__": loader, "__id__": 1, "content": {}}
            archive.writestr("schema.json", json.dumps({**node, "protocol": 2, "_skops_version": "0.11"}))
        return worst(tmp_path / "m.skops")

    assert saved("sklearn.linear_model._logistic", "LogisticRegression", "ObjectNode") == 0
    assert saved("os", "system", "FunctionNode") == 5
    assert saved("builtins", "eval", "FunctionNode") == 5
    assert saved("mine", "f", "FunctionNode") == 5


def test_tensorflow_graphs(tmp_path):
    def field(number, data):
        return bytes([number << 3 | 2, len(data)]) + data

    def saved(operator):
        node = field(1, b"node") + field(2, operator.encode()) + field(3, b"input")
        (tmp_path / "saved_model.pb").write_bytes(b"\x08\x01" + field(2, field(2, field(1, node))))
        return worst(tmp_path)

    assert [saved(name) for name in ("MatMul", "Conv2D", "RestoreV2", "SaveV2")] == [0, 0, 0, 0]
    assert [saved(name) for name in ("ReadFile", "WriteFile", "PyFunc", "EagerPyFunc")] == [5, 5, 5, 5]
    (tmp_path / "saved_model.pb").unlink()
    (tmp_path / "graph.pbtxt").write_text('node {\n  name: "w"\n  op: "WriteFile"\n}\n')
    assert worst(tmp_path) == 5


def test_compressed_members_of_zip_archives(tmp_path):
    for name in ("x.pkl", "x", "x.json"):
        for packer in ("gz", "zlib", "lzma", "xz", "bz2", "lz4"):
            with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
                archive.writestr(name, PACKERS[packer](pickle.dumps(Evil())))
            assert worst(tmp_path / "m.zip") == 5, (name, packer)


def test_random_bytes_are_clean(tmp_path):
    random = np.random.default_rng(3)
    for number, start in enumerate((b"x\x9c", b"x\xda", b"BZ", b"]\x00", b"ZF", b"\x04\x22", b"\x89HDF", b"x^2 + 1")):
        (tmp_path / f"{number}.dat").write_bytes(start + random.bytes(70_000))
    (tmp_path / "heap.dat").write_bytes(b"\x89HDF\r\n\x1a\n" + struct.pack("<Q", 0) + random.bytes(900_000))
    assert worst(tmp_path) == 0, cc.scan(tmp_path).table()
