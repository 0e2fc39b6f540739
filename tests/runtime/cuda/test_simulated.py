"""Operators and small networks with ``device="cuda"``: on a card where there is one, otherwise under Numba's simulator, in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from candle_convert.runtime.cuda.machine import state

FULL = os.environ.get("CANDLE_FULL") == "1"
HERE = Path(__file__).parent


def rows(kind, every, only=""):
    card = bool(state().devices)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} | ({} if card else {"NUMBA_ENABLE_CUDASIM": "1"})
    command = [sys.executable, str(HERE / "cases.py"), kind, "--every", str(1 if FULL or card else every), "--only", only]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("kind", "every", "least"), [("examples", 16, 60), ("suite", 90, 18), ("graphs", 1, 5)])
def test_device_agrees(kind, every, least):
    found = rows(kind, every)
    wrong = [row for row in found if row["wrong"]]
    assert not wrong, "\n".join(f"{row['case']}: {row['wrong']}" for row in wrong[:10])
    assert len(found) >= least
