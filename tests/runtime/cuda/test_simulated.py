"""Operators and small networks with ``device="cuda"``: on a card where there is one, otherwise under Numba's simulator, in processes of their own."""

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from candle_convert.runtime.cuda.machine import state
from on_device import said

FULL = os.environ.get("CANDLE_FULL") == "1"
HERE = Path(__file__).parent


def rows(kind, every, only=""):
    found = said(HERE / "cases.py", kind, "--every", 1 if FULL or state().devices else every, "--only", only)
    return [json.loads(line) for line in found.splitlines()]


@pytest.mark.parametrize(("kind", "every", "least"), [("examples", 16, 60), ("suite", 90, 18), ("graphs", 1, 5)])
def test_device_agrees(kind, every, least):
    found = rows(kind, every)
    wrong = [row for row in found if row["wrong"]]
    assert not wrong, "\n".join(f"{row['case']}: {row['wrong']}" for row in wrong[:10])
    assert len(found) >= least
