"""The CUDA benchmark: every part runs in the simulator on tiny sizes; without a GPU it fails with one line."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from candle_convert.runtime.cuda.device.device import cuda_support
from candle_convert.tests.builders.paths import BENCHMARKS
from candle_convert.tests.builders.sampling import full
from candle_convert.tests.device_scripts.runner import run_script

FULL = full()
SCRIPT = BENCHMARKS / "cuda.py"
PARTS = {
    "copies": 3, "products": 3, "quantized": 4, "encoder": 1, "networks": 1, "encoders": 1,
    **({"language": 2} if FULL else {}),  # tokens of a model take the simulator half a minute
}  # fmt: skip


def test_every_part_runs():
    rows = json.loads(run_script(SCRIPT, "--tiny", "--json", "--parts", ",".join(PARTS), card=False))["rows"]
    assert len(rows) == sum(PARTS.values())
    assert all(row["value"] > 0 for row in rows)
    assert {row["of"] for row in rows} == {"", "copy", "bf16"}


def test_without_a_card_nothing_is_measured():
    if cuda_support().devices:
        pytest.skip("there is a card")
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout.startswith("Nothing was measured: ")
    assert done.stdout.count("\n") == 1
