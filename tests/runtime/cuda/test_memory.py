"""Device memory that sessions share, arrays of other libraries, and commands that run language models, each in a process of its own."""

import os
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from candle_convert.convert.cli import run
from candle_convert.runtime.cuda.machine import state
from on_device import said

FULL = os.environ.get("CANDLE_FULL") == "1"


HERE = Path(__file__).parent


def test_memory_is_shared_and_exchanged():
    pytest.importorskip("torch", reason="torch is not installed")
    found = said(HERE / "memory_on_device.py").splitlines()
    assert found == ["weights are there once", "memory comes back", "lent arrays keep their memory", "arrays are exchanged"]


def test_commands_on_the_device(tmp_path):
    text, refused, *others = said(HERE / "generating_on_device.py", tmp_path, *(["all"] if FULL or state().devices else [])).splitlines()
    assert text == "text"
    assert others == (["perplexity", "importance"] if FULL or state().devices else [])
    assert refused.startswith("this graph needs ")
    assert "(found 2,048 bytes free)" in refused


COMMANDS = [
    ("run", "m.onnx"), ("generate", "m.gguf", "-p", "a"), ("eval", "m.onnx", "-d", "d.npz"), ("eval", "m.gguf", "-d", "t", "--metric", "ppl"),
    ("imatrix", "m.gguf", "-d", "t.txt", "-o", "o.gguf"), ("bench", "m.onnx"),
]  # fmt: skip


@pytest.mark.skipif(state().why is None, reason="there is a card, or the simulator")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: "-".join(command[:2]))
def test_every_command_that_runs_a_model_names_its_device(command, tmp_path, monkeypatch, capsys):
    """Before any file is looked for."""
    monkeypatch.chdir(tmp_path)
    assert run([*command, "--device", "cuda"]) == 4
    assert "--device cpu" in capsys.readouterr().err
    for wrong in (["--device", "tpu"], ["--gpu-layers", "1"], ["--max-device-memory", "1GiB"], ["--device", "cuda", "--gpu-layers", "x"]):
        assert run([*command, *wrong]) == 2, wrong
