"""Commands with ``--device``: same results as on the CPU, and one clear error line without a GPU."""

import pytest
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.onnx_files import perceptron
from candle_convert.tests.builders.paths import DEVICE_SCRIPTS
from candle_convert.tests.device_scripts.runner import run_script

COMMANDS = {
    "calibrate": ["-d", "{folder}", "-o", "{folder}/out.json"],
    "verify": ["{model}"],
    "profile": [],
    "eval": ["-d", "{folder}"],
    "imatrix": ["-d", "{model}", "-o", "{folder}/out.gguf"],
    "graph reduce": ["{folder}/out.onnx"],
    "generate": ["-p", "a"],
    "run": [],
    "bench": [],
}


def test_commands_say_the_same_on_the_device(tmp_path):
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    for name in ("onnx", "onnxruntime"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    assert run_script(DEVICE_SCRIPTS / "commands_on_device.py", tmp_path).splitlines() == [
        "calibrate",
        "verify",
        "profile",
        "eval",
        "reduce",
    ]


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
