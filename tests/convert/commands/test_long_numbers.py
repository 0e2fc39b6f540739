"""Numbers of 5,000 digits in the names of tensors, which Python does not read as integers: names like any other."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.tiny_llama import written
from safetensors.numpy import load_file, save_file

DIGITS = "9" * 5000
NAMES = [f"model.layers.{DIGITS}.mlp.up_proj.weight", f"blk.{DIGITS}.ffn_up.weight", f"layers.{DIGITS}.a.weight",
         f"encoder.blocks.{DIGITS}.a.weight", f"model.encoder.layers.{DIGITS}.a.weight",
         f"encoder/layer_{DIGITS}/a/weight"]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers")
    cc.convert(written(folder / "m.gguf"), folder / "model", to="safetensors")
    return folder


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.partition("9")[0])
@pytest.mark.parametrize(
    "words",
    [("models", "show", "{in}"), ("convert", "{in}", "{out}.gguf"), ("convert", "{in}", "{out}.onnx"),
     ("convert", "{in}", "{out}.safetensors"), ("quantize", "{in}", "{out}.gguf", "Q4_K_M"),
     ("generate", "{in}", "-p", "a", "-n", "1"), ("split", "{in}", "{out}.safetensors", "--shard-tensors", "3")],
    ids=lambda words: words[0],
)  # fmt: skip
def test_names_of_tensors(words, name, folder, tmp_path, capsys):
    weights = load_file(folder / "model" / "model.safetensors")
    for file in (folder / "model").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    for held in (weights, {}):
        save_file({**held, name: np.ones((2, 32), np.float32)}, tmp_path / "model.safetensors", {"format": "pt"})
        given = tmp_path if held else tmp_path / "model.safetensors"
        code = run([word.format(**{"in": given, "out": tmp_path / f"out{len(held)}"}) for word in words])
        assert code in (0, 1, 2, 3, 4), capsys.readouterr().err[:500]


def test_numbers_that_messages_merge():
    """Only those that Python writes the same way: others stay as they are in the file."""
    from candle_convert.runtime.contract.weight_binding import list_names

    assert list_names(["a.0.b", "a.1.b", "a.2.b", "a.02.b", "a.\u0663.b"]) == "a.{0-2}.b, a.02.b, a.\u0663.b"
    assert list_names([f"a.{DIGITS}.b"]) == f"a.{DIGITS}.b"
