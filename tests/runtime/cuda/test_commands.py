"""Commands with ``--device``: the same on the device as on the CPU, and one clear line where there is none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from candle_convert.convert.cli import run
from candle_convert.runtime.cuda.machine import state
from onnx_files import perceptron

COMMANDS = {
    "calibrate": ["-d", "{folder}", "-o", "{folder}/out.json"], "verify": ["{model}"], "profile": [], "eval": ["-d", "{folder}"],
    "imatrix": ["-d", "{model}", "-o", "{folder}/out.gguf"], "graph reduce": ["{folder}/out.onnx"], "generate": ["-p", "a"], "run": [], "bench": [],
}


def test_commands_say_the_same_on_the_device(tmp_path):
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    for name in ("onnx", "onnxruntime"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} | ({} if state().devices else {"NUMBA_ENABLE_CUDASIM": "1"})
    script = str(Path(__file__).parent / "commands_on_device.py")
    done = subprocess.run([sys.executable, "-W", "ignore", script, str(tmp_path)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["calibrate", "verify", "profile", "eval", "reduce"]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_device_is_said_in_one_line(command, tmp_path, capsys):
    """Before anything is read or written."""
    model = perceptron(tmp_path / "m.onnx")
    options = [option.format(folder=tmp_path, model=model) for option in COMMANDS[command]]
    assert run([*command.split(), str(model), *options, "--device", "cuda:99"]) in (2, 4)
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert "E-DEVICE-" in line
    assert not told.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx"]
