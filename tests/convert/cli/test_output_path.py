"""What happens to an output that is there already, be it a file, a link or a folder: the same in every command, and in
every function of Python."""

import json
import os
import signal
from pathlib import Path

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.console.atomic_replace import short_name
from candle_convert.convert.open.detect_format import formats
from candle_convert.convert.write.staging import Staging
from candle_convert.tests.builders import onnx_files, tiny_llama

ARRAYS = {"a.weight": np.arange(512, dtype=np.float32).reshape(2, 256), "b": np.ones(4, np.float32)}
OLD = b"precious"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Inputs of every command, in the working folder."""
    monkeypatch.chdir(tmp_path)
    cc.save_file(ARRAYS, "in.safetensors")
    cc.save_file({"blk.0.ffn_up.weight": ARRAYS["a.weight"]}, "in.gguf", metadata={"general.name": "x"})
    cc.convert("in.safetensors", "parts", to="safetensors", shard_tensors=1)
    onnx_files.perceptron("in.onnx")
    tiny_llama.written(tmp_path / "lm.gguf")
    np.savez("data.npz", x=np.ones((2, 3), np.float32))
    (tmp_path / "text.txt").write_text("some text to look at " * 40)
    return tmp_path


COMMANDS = {
    "convert": (["convert", "in.safetensors", "OUT.gguf"], "OUT.gguf"),
    "convert --quantize": (["convert", "in.gguf", "OUT.gguf", "--quantize", "Q8_0"], "OUT.gguf"),
    "convert --report": (["convert", "in.safetensors", "new.npz", "--report", "OUT.json"], "OUT.json"),
    "quantize": (["quantize", "in.gguf", "OUT.gguf", "Q8_0"], "OUT.gguf"),
    "quantize onnx": (["quantize", "in.onnx", "OUT.onnx", "fp16"], "OUT.onnx"),
    "quantize --save-recipe": (["quantize", "in.gguf", "new.gguf", "Q8_0", "--save-recipe", "OUT.toml"], "OUT.toml"),
    "quantize --report": (["quantize", "in.gguf", "new.gguf", "Q8_0", "--report", "OUT.json"], "OUT.json"),
    "dequantize": (["dequantize", "in.gguf", "OUT.safetensors"], "OUT.safetensors"),
    "split": (["split", "in.safetensors", "OUT.safetensors", "--shard-tensors", "1"], "OUT-00002-of-00002.safetensors"),
    "merge": (["merge", "parts/model-00001-of-00002.safetensors", "OUT.safetensors"], "OUT.safetensors"),
    "metadata set": (["metadata", "set", "in.gguf", "general.name", "y", "-o", "OUT.gguf"], "OUT.gguf"),
    "metadata unset": (["metadata", "unset", "in.gguf", "general.name", "-o", "OUT.gguf"], "OUT.gguf"),
    "metadata copy": (["metadata", "copy", "lm.gguf", "in.gguf", "-o", "OUT.gguf"], "OUT.gguf"),
    "graph simplify": (["graph", "simplify", "in.onnx", "OUT.onnx"], "OUT.onnx"),
    "graph opset": (["graph", "opset", "in.onnx", "OUT.onnx"], "OUT.onnx"),
    "graph shapes": (["graph", "shapes", "in.onnx", "OUT.onnx"], "OUT.onnx"),
    "graph extract": (["graph", "extract", "in.onnx", "OUT.onnx", "--outputs", "hidden"], "OUT.onnx"),
    "graph rename": (["graph", "rename", "in.onnx", "OUT.onnx", "--value", "x=z"], "OUT.onnx"),
    "calibrate": (["calibrate", "in.onnx", "-d", "data.npz", "-o", "OUT.json"], "OUT.json"),
    "imatrix": (
        ["imatrix", "lm.gguf", "-d", "text.txt", "--context", "16", "--chunks", "1", "-o", "OUT.gguf"],
        "OUT.gguf",
    ),
    "finetune": (["finetune", "lm.gguf", "-d", "text.txt", "-o", "OUT"], "OUT"),
    "tokenizer export": (["tokenizer", "export", "lm.gguf", "OUT.gguf"], "OUT.gguf"),
    "tokenizer export files": (["tokenizer", "export", "lm.gguf", "folder"], "folder/tokenizer.json"),
    "profile": (["profile", "in.onnx", "--runs", "1", "--warmup", "0", "-o", "OUT.json"], "OUT.json"),
    "run": (["run", "in.onnx", "-o", "OUT.npz"], "OUT.npz"),
    "inspect": (["inspect", "in.onnx", "--html", "OUT.html"], "OUT.html"),
    "verify": (["verify", "in.gguf", "in.gguf", "--certificate", "OUT.json"], "OUT.json"),
    "hash": (["hash", "in.gguf", "--write", "OUT.sha256"], "OUT.sha256"),
    "print": (["print", "in.gguf", "blk.0.ffn_up.weight", "--save", "OUT.npy"], "OUT.npy"),
}


def put(kind, path):
    """Something at the output's place; what it is known by afterwards."""
    path.parent.mkdir(exist_ok=True)
    other = path.with_name("target of the link")
    if kind == "file":
        path.write_bytes(OLD)
    elif kind == "link":
        other.write_bytes(OLD)
        path.symlink_to(other.name)
    elif kind == "dangling link":
        path.symlink_to("nowhere")
    else:
        path.symlink_to(path.name)
    return lambda: (
        os.path.islink(path),
        os.readlink(path) if path.is_symlink() else path.read_bytes(),
        other.exists() and other.read_bytes(),
    )


@pytest.mark.parametrize("kind", ["file", "link", "dangling link", "loop"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_asks_for_force(command, kind, files, capsys):
    words, output = COMMANDS[command]
    state = put(kind, files / output)
    before, listed = state(), sorted(os.listdir(files))
    assert run(words) == 5, capsys.readouterr()
    said = capsys.readouterr().err
    assert "E-OUT-EXISTS" in said
    assert "--force" in said
    assert state() == before
    assert sorted(os.listdir(files)) == listed


@pytest.mark.parametrize("kind", ["file", "link", "dangling link"])
@pytest.mark.parametrize(
    "command",
    ["convert", "convert --report", "quantize", "metadata set", "tokenizer export", "hash", "verify", "print"],
)
def test_force_replaces_the_name_and_not_what_it_points_to(command, kind, files):
    words, output = COMMANDS[command]
    put(kind, files / output)
    assert run([*words, "--force"]) == 0
    made = files / output
    assert made.is_file()
    assert not made.is_symlink()
    assert made.read_bytes() != OLD
    assert not (files / "nowhere").exists()
    if kind == "link":
        assert (files / "target of the link").read_bytes() == OLD


@pytest.mark.parametrize("name", ["OUT.gguf.partial", "OUT.gguf.partial.journal"])
@pytest.mark.parametrize("kind", ["link", "dangling link"])
@pytest.mark.parametrize("more", [(), ("--resume",), ("--force",)])
def test_a_link_in_the_place_of_our_own_files_is_not_followed(name, kind, more, files):
    put(kind, files / name)
    assert run(["convert", "in.safetensors", "OUT.gguf", *more]) == 5
    assert not (files / "OUT.gguf").exists()
    assert not (files / "nowhere").exists()
    if kind == "link":
        assert (files / "target of the link").read_bytes() == OLD


def test_a_link_to_a_folder_is_a_folder(files):
    (files / "real").mkdir()
    (files / "linked").symlink_to("real")
    assert run(["convert", "in.safetensors", "linked", "-t", "safetensors"]) == 0
    assert run(["convert", "in.safetensors", "linked", "-t", "safetensors"]) == 5
    assert os.listdir(files / "real") == ["model.safetensors"]


WRITERS = {
    "convert": lambda path, **more: cc.convert("in.safetensors", path, **more),
    "quantize": lambda path, **more: cc.quantize("in.gguf", path, "q8_0", **more),
    "save_file": lambda path, **more: cc.save_file(ARRAYS, path, **more),
    "plan.execute": lambda path, **more: cc.plan("in.gguf", cc.Recipe("q8_0")).execute(path, **more),
    "onnx": lambda path, **more: cc.onnx.read("in.onnx").save(path, **more),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_functions_of_python_agree(writer, files):
    path = files / ("OUT.onnx" if writer == "onnx" else "OUT.gguf")
    for force in (None, True):
        path.write_bytes(OLD)
        WRITERS[writer](path, **({} if force is None else {"force": force}))
        assert path.read_bytes() != OLD
    path.write_bytes(OLD)
    with pytest.raises(cc.UnsafeFileError, match="E-OUT-EXISTS"):
        WRITERS[writer](path, force=False)
    assert path.read_bytes() == OLD


def test_an_input_is_replaced_only_by_force(files):
    before = (files / "in.gguf").read_bytes()
    (files / "same.gguf").symlink_to("in.gguf")
    for name in ("in.gguf", "same.gguf"):
        with pytest.raises(cc.UnsafeFileError, match="E-OUT-EXISTS"):
            cc.convert("in.gguf", name, dtype="f16")
        with pytest.raises(cc.UnsafeFileError, match="E-OUT-EXISTS"):
            cc.quantize("in.gguf", name, "q8_0")
    assert (files / "in.gguf").read_bytes() == before
    cc.convert("in.gguf", "in.gguf", dtype="f16", force=True)
    assert (files / "in.gguf").read_bytes() != before


WRITTEN = [format for format in formats() if format.layout is not None and not (format.graphs or format.architecture)]


@pytest.mark.parametrize("format", WRITTEN, ids=lambda format: format.name)
def test_a_tensor_without_a_name(format, files):
    arrays = {"": np.arange(3, dtype=np.float32), "b": np.ones(2, np.float32)}
    path = files / f"out{format.suffixes[0]}"
    cc.save_file(arrays, path)
    assert {name: array.tolist() for name, array in cc.load_file(path).items()} == {"": [0, 1, 2], "b": [1, 1]}
    cc.save_file({"": arrays[""]}, path)
    assert list(cc.open(path)) == [""]


def test_numbers_of_metadata_are_numbers(files, capsys):
    values = {
        "count": np.uint32(7),
        "rate": np.float32(0.5),
        "odd": np.float64("nan"),
        "flag": True,
        "ids": np.arange(300),
        "text": ["a", "b"],
    }
    cc.save_file(ARRAYS, "meta.gguf", metadata=values)
    assert run(["inspect", "meta.gguf", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["metadata"]
    assert found == {"count": 7, "rate": 0.5, "odd": "nan", "flag": True, "ids": list(range(300)), "text": ["a", "b"]}
    assert run(["inspect", "meta.gguf"]) == 0
    assert max(map(len, capsys.readouterr().out.split("\n"))) < 100
    cc.save_file(ARRAYS, "other.gguf", metadata={**values, "count": np.uint32(8), "rate": np.float64(0.5)})
    assert run(["diff", "meta.gguf", "other.gguf", "--json"]) == 1
    changes = {change["name"]: change for change in json.loads(capsys.readouterr().out)["metadata"]}
    assert (changes["count"]["a"], changes["count"]["b"]) == (7, 8)
    assert (changes["rate"]["a"], changes["rate"]["b"]) == ("f32 0.5", "f64 0.5")
    assert run(["inspect", "meta.gguf", "--html", "page.html"]) == 0
    assert "base64" not in (files / "page.html").read_text()


@pytest.mark.parametrize("other", [np.float32, np.int64, np.uint8])
def test_strings_and_numbers_under_one_name_are_compared(other, files, capsys):
    import onnx
    from onnx import helper, numpy_helper

    words = numpy_helper.from_array(np.array([["a"] * 4], dtype=object), "w")
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", ends[:1], ends[1:], [words])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "words.onnx")
    cc.save_file({"w": np.ones((1, 4), other)}, "numbers.safetensors")
    for command in ("verify", "diff"):
        for sides in (["words.onnx", "numbers.safetensors"], ["numbers.safetensors", "words.onnx"]):
            assert run([command, *sides]) == 1, capsys.readouterr()


@pytest.mark.parametrize("length", [240, 255])
@pytest.mark.parametrize("command", ["convert", "convert --report", "quantize", "metadata set", "run", "finetune"])
def test_names_of_the_greatest_length(command, length, files):
    """What is written on the way has a shorter name, and nothing of it is left."""
    words, output = COMMANDS[command]
    name = f"{'é' * 40}{'n' * (length - 80 - len(Path(output).suffix))}{Path(output).suffix}"
    before = set(os.listdir(files))
    assert run([name if word == output else word for word in words]) == 0
    assert set(os.listdir(files)) - before - {"new.npz"} == {name}


def test_a_long_name_is_resumed(files, monkeypatch):
    name = f"{'n' * 250}.gguf"
    with monkeypatch.context() as patched:
        patched.setattr(Staging, "publish", lambda staging, *_: signal.raise_signal(signal.SIGINT))
        assert run(["convert", "in.safetensors", name]) == 130
    left = sorted(path for path in os.listdir(files) if ".partial" in path)
    assert [path[-8:] for path in left] == [".partial", ".journal"]
    assert run(["convert", "in.safetensors", name, "--resume"]) == 0
    assert not [path for path in os.listdir(files) if ".partial" in path]


def test_shortened_names_differ():
    assert len({short_name("n" * 250 + end, 16) for end in ("a", "b", "é")}) == 3
    assert short_name("n" * 239, 16) == "n" * 239
    assert len(os.fsencode(short_name("é" * 127, 16))) <= 239
