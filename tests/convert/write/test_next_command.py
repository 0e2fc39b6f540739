"""The command that a result prints: it parses, and it works on the result."""

import json
import shlex

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.onnx_files import perceptron
from candle_convert.tests.builders.text_checkpoints import checkpoint
from candle_convert.tests.builders.tiny_llama import written


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "lm.gguf")
    perceptron("net.onnx")
    np.savez("x.npz", x=np.ones((2, 3), np.float32))
    (tmp_path / "words.txt").write_text("Hello there " * 40)
    cc.save_file({"w": np.ones((4, 64), np.float32)}, "m.safetensors")
    (tmp_path / "d.jsonl").write_text(json.dumps({"text": "Hello world"}) + "\n" * 1)
    return tmp_path


def following(capsys, words):
    """The words after the program's name of the command that comes next."""
    assert run(words) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith(" next ")]
    program, *words = shlex.split(line.removeprefix(" next "))
    assert program == "candle-convert"
    return words


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        (["convert", "lm.gguf", "lm", "--to", "safetensors"], "generate"),
        (["convert", "lm.gguf", "bare.gguf", "--no-tokenizer"], None),
        (["convert", "m.safetensors", "m.gguf"], "inspect"),
        (["convert", "net.onnx", "copy.onnx"], "run"),
        (["graph", "simplify", "net.onnx", "slim.onnx"], "run"),
        (["quantize", "lm.gguf", "q.gguf", "Q8_0"], "verify"),
        (["quantize", "net.onnx", "q.onnx", "int8"], "bench"),
        (["dequantize", "lm.gguf", "f.gguf"], "generate"),
        (["calibrate", "net.onnx", "-d", "x.npz", "-o", "ranges.json"], "quantize"),
        (["imatrix", "lm.gguf", "-d", "words.txt", "-o", "i.gguf", "--context", "16", "--chunks", "1"], "quantize"),
        (["models", "list", "llama"], "models"),
        (["finetune", "lm.gguf", "-d", "d.jsonl", "-o", "tuned", "--lora", "2", "--epochs", "1"], "inspect"),
        (
            ["finetune", "lm.gguf", "-d", "d.jsonl", "-o", "whole", "--lora", "2", "--epochs", "1", "--merge"],
            "generate",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_the_next_command_works(folder, capsys, words, verb):
    then = following(capsys, words)
    assert verb is None or then[0] == verb
    assert run([*then, *(["-n", "2"] if verb == "generate" else [])]) == 0, capsys.readouterr().err


def test_encoders_are_embedded_and_classifiers_predict(folder, capsys):
    pytest.importorskip("torch")
    for kind, verb in (("BertModel", "embed"), ("BertForSequenceClassification", "predict")):
        (folder / kind).mkdir()
        checkpoint(kind, folder / kind)
        then = following(capsys, ["convert", kind, f"{kind}.gguf"])
        assert then[0] == verb
        assert run(then) == 0


@pytest.mark.parametrize(
    "name", ["tekken.json", "whisper.tiktoken", "sentencepiece.bpe.model", "tokenizer.model", "source.spm", "vocab.txt"]
)
def test_any_tokenizer_makes_a_model_that_generates(folder, capsys, name):
    assert run(["convert", "lm.gguf", "lm", "--to", "safetensors", "--no-tokenizer"]) == 0
    capsys.readouterr()
    assert following(capsys, ["convert", "lm", "bare", "--to", "safetensors"])[0] == "inspect"
    (folder / "lm" / name).write_bytes(b"")
    assert following(capsys, ["convert", "lm", "out", "--to", "safetensors"])[0] == "generate"


def test_an_adapter_is_merged_into_its_directory(folder, capsys):
    assert run(["convert", "lm.gguf", "lm", "--to", "safetensors"]) == 0
    capsys.readouterr()
    then = following(capsys, ["finetune", "lm", "-d", "d.jsonl", "-o", "tuned", "--lora", "2", "--epochs", "1"])
    assert then[:2] == ["convert", "lm"]
    assert following(capsys, then)[0] == "generate"


def test_json_and_quiet_have_no_next_command(folder, capsys):
    for option in ("--json", "--quiet"):
        assert run(["convert", "m.safetensors", f"{option[2:]}.gguf", option]) == 0
        assert capsys.readouterr().err == ""


def test_a_resumed_run_says_what_it_kept(folder, capsys):
    words = ["convert", "m.safetensors", "m.npz", "--resume"]
    assert run(words) == 0
    assert " resumed  nothing to keep of the interrupted run" in capsys.readouterr().out
    from candle_convert.convert.console.progress import NoProgress
    from candle_convert.convert.write import write
    from candle_convert.convert.write.staging import Staging

    cc.save_file({name: np.ones((4, 64), np.float32) for name in "ab"}, "two.safetensors")
    made = cc.plan("two.safetensors", folder / "two.npz", cc.Options(resume=True))
    place = Staging(made.folder, made.name, made.files, made.fingerprint)
    write.write(place, 1, NoProgress(), resume=False)
    place.close()
    assert run(["convert", "two.safetensors", "two.npz", "--resume"]) == 0
    said = capsys.readouterr().out
    assert " resumed  kept " in said
    assert "0 B of" not in said
    assert run(["calibrate", "net.onnx", "-d", "x.npz", "-o", "r.json"]) == 0
    assert run(["calibrate", "net.onnx", "-d", "x.npz", "-o", "r.json", "--resume"]) == 0
    assert " resumed  kept 1 sample of r.json" in capsys.readouterr().out


def test_a_format_without_block_types_names_dequantize(folder, capsys):
    assert run(["quantize", "lm.gguf", "q.gguf", "Q8_0"]) == 0
    capsys.readouterr()
    assert run(["convert", "q.gguf", "q.npz"]) == 4
    error = capsys.readouterr().err
    assert "E-OUT-DTYPE" in error
    assert "candle-convert dequantize q.gguf OUT.npz" in error
    assert run(["dequantize", "q.gguf", "q.npz"]) == 0
