"""Sources: a kernel's digest changes with the files that it is made of, and with no other."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import candle_convert
import pytest
from candle_convert.runtime import sources

ROOT = Path(candle_convert.__file__).parent
MODULES = ("ops.nn.conv_kernel", "ops.nn.softmax_kernel", "ops.math.rows_kernel", "ops.quants.encoders.q8", "runtime.native")
PROGRAM = f"""
from candle_convert.runtime import sources
print(*(sources.digest(f"candle_convert.{{name}}") for name in {MODULES!r}))
"""
EDITS = {
    "ops/nn/winograd_kernel.py": {"ops.nn.conv_kernel"},
    "ops/nn/softmax_kernel.py": {"ops.nn.softmax_kernel"},
    "ops/quants/products/__init__.py": {"ops.math.rows_kernel"},
    "ops/quants/products/k.py": set(),
    "ops/quants/encoders/rounding.py": {"ops.quants.encoders.q8"},
    "ops/nn/conv.py": set(),
    "runtime/plan.py": set(),
    "runtime/native.py": {"ops.nn.conv_kernel", "ops.nn.softmax_kernel", "runtime.native"},
    "runtime/linking.py": set(MODULES),
}


def digests(root):
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, cwd=root, capture_output=True, text=True, check=True)
    return dict(zip(MODULES, done.stdout.split(), strict=True))


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the package without a place in the path of others."""
    root = tmp_path_factory.mktemp("copy")
    for folder in ("runtime", "ops"):
        shutil.copytree(ROOT / folder, root / "candle_convert" / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "__init__.py", root / "candle_convert")
    return root


def test_edits_change_what_is_made_of_a_file(copy):
    before = digests(copy)
    assert len(set(before.values())) == len(MODULES)
    for name, changed in EDITS.items():
        path = copy / "candle_convert" / name
        text = path.read_bytes()
        path.write_bytes(text + b"\n# edited\n")
        after = digests(copy)
        assert {module for module in MODULES if after[module] != before[module]} == changed, name
        path.write_bytes(text)
    assert digests(copy) == before


def test_a_source_that_changes_while_a_process_runs_has_no_digest(monkeypatch):
    name = "candle_convert.ops.shape.fill_kernel"
    monkeypatch.setattr(sources, "_BEGAN", 0)
    sources._read.cache_clear()
    with pytest.raises(sources.ChangedError):
        sources.digest.__wrapped__(name)
    monkeypatch.undo()
    assert sources.digest.__wrapped__(name) == sources.digest(name)
    with pytest.raises(sources.ChangedError):
        sources.digest("no_such_module")
