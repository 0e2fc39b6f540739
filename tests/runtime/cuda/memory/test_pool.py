"""Device memory shared by sessions, arrays of other libraries, and language-model commands, each in its own process."""

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from candle_convert.convert.cli.main import run
from candle_convert.runtime.cuda.device.device import cuda_support
from candle_convert.tests.builders.paths import DEVICE_SCRIPTS
from candle_convert.tests.builders.sampling import full
from candle_convert.tests.device_scripts.runner import run_script

FULL = full()


def test_memory_is_shared_and_exchanged():
    pytest.importorskip("torch", reason="torch is not installed")
    found = run_script(DEVICE_SCRIPTS / "device_memory.py").splitlines()
    assert found == [
        "weights are there once",
        "memory comes back",
        "in-place inputs keep their memory",
        "arrays are exchanged",
    ]


def test_commands_on_the_device(tmp_path):
    script, everything = DEVICE_SCRIPTS / "generation_on_device.py", ["all"] if FULL or cuda_support().devices else []
    text, refused, *others = run_script(script, tmp_path, *everything).splitlines()
    assert text == "text"
    assert others == (["perplexity", "importance"] if FULL or cuda_support().devices else [])
    assert refused.startswith("this graph needs ")
    assert "(found 2,048 bytes free)" in refused


COMMANDS = [
    ("run", "m.onnx"),
    ("generate", "m.gguf", "-p", "a"),
    ("eval", "m.onnx", "-d", "d.npz"),
    ("eval", "m.gguf", "-d", "t", "--metric", "ppl"),
    ("imatrix", "m.gguf", "-d", "t.txt", "-o", "o.gguf"),
    ("bench", "m.onnx"),
]


@pytest.mark.usefixtures("no_card")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: "-".join(command[:2]))
def test_every_command_that_runs_a_model_names_its_device(command, tmp_path, monkeypatch, capsys):
    """Before any file is looked for."""
    monkeypatch.chdir(tmp_path)
    assert run([*command, "--device", "cuda"]) == 4
    assert "--device cpu" in capsys.readouterr().err
    for wrong in (
        ["--device", "tpu"],
        ["--gpu-layers", "1"],
        ["--max-device-memory", "1GiB"],
        ["--device", "cuda", "--gpu-layers", "x"],
    ):
        assert run([*command, *wrong]) == 2, wrong
