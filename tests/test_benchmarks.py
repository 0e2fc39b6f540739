"""Benchmarks: imports of the package exist, and the script that uses the planner runs."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from candle_convert.tests.builders.encoder_cases import ENCODERS, inputs
from candle_convert.tests.oracles.transformers import made

torch = pytest.importorskip("torch")

SCRIPTS = sorted(Path(__file__).parents[1].glob("benchmarks/*.py"))


def imports(path):
    """(module, name) of each `from candle_convert... import name`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "candle_convert":
            yield from ((node.module, alias.name) for alias in node.names)


def exists(module, name):
    if hasattr(importlib.import_module(module), name):
        return True
    try:
        importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return False
    return True


def test_there_are_scripts():
    assert {"convert", "cuda", "generate", "onnx", "quantize"} <= {path.stem for path in SCRIPTS}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_imports_exist(path):
    missing = [f"{module}.{name}" for module, name in imports(path) if not exists(module, name)]
    assert missing == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_programs_parse_their_arguments(path):
    """So that --help explains a script rather than naming its output."""
    text = path.read_text(encoding="utf-8")
    assert ("__main__" in text) == ("ArgumentParser(" in text)
    assert "sys.argv[" not in text


def test_planning_runs():
    script = next(path for path in SCRIPTS if path.stem == "planning")
    command = [sys.executable, script, "--nodes", "20", "--runs", "100", "--against", "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("chain", "branches", "views", "star", "resnet50", "encoder", "scalars"):
        assert f"\n| {name} | " in done.stdout


def test_a_reference_case_is_computed(tmp_path):
    case = next(case for case in ENCODERS if case.name == "BertModel")
    model, arrays = made(case, 0, tmp_path), inputs(case, 0)
    found = {
        f"{variant}/last_hidden_state": model(**{name: torch.tensor(array) for name, array in feeds.items()})
        .last_hidden_state.detach()
        .numpy()
        for variant, feeds in arrays.items()
    }
    found["padded/last_hidden_state"] *= arrays["padded"]["attention_mask"][..., None]
    np.savez(tmp_path / "outputs.npz", **found)
    np.savez(
        tmp_path / "inputs.npz", **{f"{key}/{name}": x for key, feeds in arrays.items() for name, x in feeds.items()}
    )
    script = next(path for path in SCRIPTS if path.stem == "reference")
    subprocess.run([sys.executable, script, tmp_path, tmp_path / "found.npz"], check=True, capture_output=True)
    with np.load(tmp_path / "found.npz") as computed:
        assert set(computed.files) == set(found)
        for name, want in found.items():
            assert np.abs(computed[name] - want).max() <= case.tolerance * np.abs(want).max(), name
