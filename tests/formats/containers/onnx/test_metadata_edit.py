"""Metadata of ONNX models: keys and the model's own fields change in place, and every other byte stays."""

import json
import os
import subprocess
import sys

import candle_convert as cc
import numpy as np
import onnx
import onnxruntime
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders import tiny_llama

UNKNOWN = b"\xfa\x3e\x03new" + b"\xf5\x3e\x01\x02\x03\x04"
"""Fields of a later version of the standard: bytes, and a number of four bytes."""


@pytest.fixture
def path(tmp_path):
    """A model with unpacked numbers, a key that is there twice, unknown fields, and metadata before the graph."""
    weight = onnx.numpy_helper.from_array(np.arange(8, dtype=np.float32), "w")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [8])],
        [onnx.helper.make_tensor_value_info("y", 1, [8])],
        [weight],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8, producer_name="maker"
    )
    keys = onnx.ModelProto()
    for key, value in (("name", "old"), ("other", "kept"), ("name", "again")):
        keys.metadata_props.add(key=key, value=value)
    target = tmp_path / "m.onnx"
    target.write_bytes(keys.SerializeToString() + UNKNOWN + model.SerializeToString())
    return target


def entries(path):
    return [(entry.key, entry.value) for entry in onnx.load(path, load_external_data=False).metadata_props]


def without_metadata(path):
    """The bytes of a model without the fields that are metadata."""
    model = onnx.load(path, load_external_data=False)
    for field in ("metadata_props", "producer_name", "producer_version", "domain", "model_version", "doc_string"):
        model.ClearField(field)
    return model.SerializeToString()


def runs(path):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.ones(8, np.float32)})[0].tolist() == list(range(1, 9))


def test_keys_change_in_place(path):
    before = without_metadata(path)
    path.chmod(0o640)
    assert run(["metadata", "set", str(path), "name", "new"]) == 0
    assert entries(path) == [("name", "new"), ("other", "kept")]
    assert run(["metadata", "set", str(path), "third", "3", "--type", "u32"]) == 0
    assert cc.open(path).metadata == {"name": "new", "other": "kept", "third": np.uint32(3)}
    assert run(["metadata", "unset", str(path), "name", "third"]) == 0
    assert entries(path) == [("other", "kept")]
    assert without_metadata(path) == before
    assert UNKNOWN in path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert runs(path)


def test_all_other_bytes_stay_in_their_order(path):
    before = path.read_bytes()
    assert run(["metadata", "set", str(path), "other", "KEPT"]) == 0
    assert path.read_bytes() == before.replace(b"kept", b"KEPT")
    assert run(["metadata", "set", str(path), "other", "kept"]) == 0
    assert path.read_bytes() == before
    assert run(["metadata", "set", str(path), "producer_name", "taker"]) == 0
    assert path.read_bytes() == before.replace(b"maker", b"taker")


FIELDS = {
    "producer_name": "me",
    "producer_version": "1.2",
    "domain": "org.example",
    "model_version": "-3",
    "doc_string": "two\nlines é",
}


def test_the_models_own_fields_are_keys(path, capsys):
    for key, value in FIELDS.items():
        assert run(["metadata", "set", str(path), key, "--", value]) == 0
    model = onnx.load(path)
    assert {key: str(getattr(model, key)) for key in FIELDS} == FIELDS
    capsys.readouterr()
    assert run(["metadata", "show", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["metadata"]
    assert {key: str(item["value"]) for key, item in shown.items()} == {"name": "again", "other": "kept", **FIELDS}
    assert run(["metadata", "get", str(path), "model_version"]) == 0
    assert capsys.readouterr().out == "-3\n"
    assert run(["metadata", "unset", str(path), *FIELDS]) == 0
    assert not any(onnx.load(path).HasField(key) for key in FIELDS)
    assert run(["metadata", "unset", str(path), "domain"]) == 2
    assert runs(path)


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("model_version", "x", None),
        ("model_version", str(1 << 63), None),
        ("model_version", "1.5", None),
        ("producer_name", "5", "u32"),
        ("candle_convert.metadata", "{}", None),
        ("candle_convert.files", "{}", None),
    ],
)
def test_what_a_field_cannot_hold_is_refused(key, value, kind, path, capsys):
    before = path.read_bytes()
    assert run(["metadata", "set", str(path), key, value, *(["--type", kind] if kind else []), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] in ("E-META-VALUE", "E-META-KEY")
    assert path.read_bytes() == before


def test_copy_between_formats(path, tmp_path):
    cc.save_file(
        {"x": np.ones(1, np.float32)}, tmp_path / "donor.gguf", metadata={"general.name": "donor", "count": np.int64(4)}
    )
    assert run(["metadata", "copy", str(tmp_path / "donor.gguf"), str(path), "--include", "name|count"]) == 0
    assert cc.open(path).metadata == {"name": "again", "other": "kept", "general.name": "donor", "count": np.int64(4)}
    assert run(["metadata", "copy", str(path), str(tmp_path / "donor.gguf"), "--include", "other|producer_name"]) == 0
    assert cc.open(tmp_path / "donor.gguf").metadata["producer_name"] == "maker"
    assert runs(path)


def test_external_data_is_left_where_it_is(tmp_path):
    cc.convert(tiny_llama.written(tmp_path / "m.gguf"), tmp_path / "net", to="onnx", external_data="always")
    model, data = tmp_path / "net" / "model.onnx", tmp_path / "net" / "model.onnx_data"
    before, stamp = data.read_bytes(), os.stat(data)
    for where in (model, tmp_path / "net"):
        assert run(["metadata", "set", str(where), "name", where.name]) == 0
        assert (os.stat(data).st_ino, os.stat(data).st_mtime_ns) == (stamp.st_ino, stamp.st_mtime_ns)
        assert dict(entries(model))["name"] == where.name
    assert run(["metadata", "set", str(model), "name", "twin", "-o", str(tmp_path / "net" / "twin.onnx")]) == 0
    assert run(["metadata", "set", str(model), "name", "away", "-o", str(tmp_path / "away" / "far.onnx")]) == 0
    assert (tmp_path / "away" / "model.onnx_data").read_bytes() == before
    assert run(["metadata", "set", str(model), "name", "away", "-o", str(tmp_path / "away" / "other.onnx")]) == 5
    for each in (model, tmp_path / "net" / "twin.onnx", tmp_path / "away" / "far.onnx"):
        onnx.checker.check_model(str(each))
        onnxruntime.InferenceSession(str(each), providers=["CPUExecutionProvider"])


def test_a_dry_run_and_an_existing_output_leave_everything(path, tmp_path):
    before = path.read_bytes()
    assert run(["metadata", "set", str(path), "name", "new", "--dry-run"]) == 0
    other = tmp_path / "other.onnx"
    other.write_bytes(b"mine")
    assert run(["metadata", "set", str(path), "name", "new", "-o", str(other)]) == 5
    assert (path.read_bytes(), other.read_bytes()) == (before, b"mine")
    assert run(["metadata", "set", str(path), "name", "new", "-o", str(other), "--force"]) == 0
    assert dict(entries(other))["name"] == "new"


def test_weights_do_not_go_through_memory(tmp_path):
    """A weight of 512 MiB is copied in pieces."""
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[1 << 27])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["w"], ["y"])],
        "g",
        [],
        [onnx.helper.make_tensor_value_info("y", 1, [1 << 27])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    inner = model.graph.SerializeToString()
    model.ClearField("graph")
    held = tensor.SerializeToString() + b"\x4a" + _varint(1 << 29)
    size = len(held) + (1 << 29)
    body = inner + b"\x2a" + _varint(size)
    target = tmp_path / "large.onnx"
    with open(target, "wb") as file:
        file.write(model.SerializeToString() + b"\x3a" + _varint(len(body) + size) + body + held)
        file.truncate(file.tell() + (1 << 29))
    code = (
        "import sys\nfrom candle_convert.convert.cli.main import run\nfrom candle_convert.convert.console.memory "
        "import peak_rss\n"
        "print(run(sys.argv[1:]), peak_rss())"
    )
    words = [sys.executable, "-c", code, "metadata", "set", str(target), "name", "large", "-q", "--threads", "1"]
    status, peak = map(int, subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())
    assert status == 0
    assert 0 < peak < 320 << 20
    assert target.stat().st_size > 1 << 29


def _varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "pth", "gguf"])
def test_every_other_format_in_a_file_and_a_directory(suffix, tmp_path):
    (tmp_path / "one").mkdir()
    cc.save_file({"w": np.ones((2, 32), np.float32)}, tmp_path / "one" / f"model.{suffix}")
    for where in (tmp_path / "one" / f"model.{suffix}", tmp_path / "one"):
        assert run(["metadata", "set", str(where), "key", where.name]) == 0
        assert cc.open(tmp_path / "one" / f"model.{suffix}").metadata["key"] == where.name
        assert run(["metadata", "unset", str(where), "key"]) == 0


def test_several_files_are_refused(tmp_path, capsys):
    arrays = {f"w{index}": np.ones((2, 32), np.float32) for index in range(4)}
    cc.save_file(arrays, tmp_path / "m.safetensors")
    cc.convert(tmp_path / "m.safetensors", tmp_path / "parts", to="safetensors", shard_tensors=2)
    assert run(["metadata", "set", str(tmp_path / "parts"), "key", "v", "--json"]) == 5
    told = json.loads(capsys.readouterr().out)["error"]
    assert (told["code"], "2 files" in told["message"], "-o" in told["hint"]) == ("E-META-PLACE", True, True)


def test_a_format_that_is_only_read_says_so(tmp_path, capsys):
    from candle_convert.convert.open.detect_format import formats

    assert {each.name for each in formats() if each.layout is None}, "there are such formats"
    (tmp_path / "net.cfg").write_text(
        "[net]\nwidth=4\nheight=4\nchannels=1\n[convolutional]\nfilters=1\nsize=1\nstride=1\npad=1\nactivation=linear\n"
    )
    np.concatenate([np.array([0, 2, 0, 0, 0], np.int32).view(np.float32), np.zeros(2, np.float32)]).tofile(
        tmp_path / "net.weights"
    )
    assert run(["metadata", "set", str(tmp_path / "net.weights"), "key", "v", "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "E-OUT-FORMAT"
