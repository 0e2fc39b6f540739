"""Benchmarks: imports of the package exist, and the script that uses the planner runs."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_planning_runs():
    script = next(path for path in SCRIPTS if path.stem == "planning")
    command = [sys.executable, script, "--nodes", "20", "--runs", "100", "--against", "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("chain", "branches", "views", "star", "resnet50", "encoder", "scalars"):
        assert f"\n| {name} | " in done.stdout
