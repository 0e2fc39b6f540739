"""`pytest --cost` on a small suite of its own: its tables name what tests do."""

import itertools
import os
import subprocess
import sys

SUITE = """
import json
import subprocess
import sys

import onnx.helper


def test_oracle():
    for _ in range(400_000):
        onnx.helper.make_node("Add", ["a", "b"], ["c"])


def test_process():
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)


def test_nothing():
    pass
"""


def test_seconds_by_kind_and_test(tmp_path):
    (tmp_path / "test_a.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "CANDLE_"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "candle_convert.tests.plugins.cost", "--cost"]
    out = subprocess.run(command, cwd=tmp_path, env=outer, capture_output=True, text=True, check=True).stdout
    kinds = {kind: float(seconds) for seconds, kind in table(out, "processor seconds by kind")}
    assert kinds["oracle"] > 0
    assert kinds["processes that tests start"] > 0
    assert kinds["all, in 1 process"] >= kinds["oracle"] + kinds["processes that tests start"] - 0.1
    dearest = [name for _, name in table(out, "40 dearest tests")]
    assert sorted(dearest[:2]) == ["test_a.py::test_oracle", "test_a.py::test_process"]
    assert dearest[2:] == ["test_a.py::test_nothing"]


def table(out, title):
    """The rows below a title: seconds and name."""
    lines = iter(out.splitlines())
    next(line for line in lines if title in line)
    return [line.split(maxsplit=1) for line in itertools.takewhile(lambda line: not line.startswith("="), lines)]
