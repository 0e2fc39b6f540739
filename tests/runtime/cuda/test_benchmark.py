"""The benchmark: every part runs under the simulator on sizes whose times mean nothing, and without a card it says so in one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from candle_convert.runtime.cuda.machine import state
from on_device import said

FULL = os.environ.get("CANDLE_FULL") == "1"
SCRIPT = Path(__file__).parents[3] / "benchmarks" / "cuda.py"
PARTS = {
    "copies": 3, "products": 3, "quantized": 4, "encoder": 1, "networks": 1, "encoders": 1,
    **({"language": 2} if FULL else {}),  # tokens of a model take the simulator half a minute
}  # fmt: skip


def test_every_part_runs():
    rows = json.loads(said(SCRIPT, "--tiny", "--json", "--parts", ",".join(PARTS), card=False))["rows"]
    assert len(rows) == sum(PARTS.values())
    assert all(row["value"] > 0 for row in rows)
    assert {row["of"] for row in rows} == {"", "copy", "bf16"}


@pytest.mark.skipif(bool(state().devices), reason="there is a card")
def test_without_a_card_nothing_is_measured():
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout.startswith("Nothing was measured: ")
    assert done.stdout.count("\n") == 1
