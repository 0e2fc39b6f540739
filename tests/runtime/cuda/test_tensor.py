"""Kernels of tensor cores: computed under the simulator, which follows the tables of PTX's fragments; assembled for four generations of cards."""

import os
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("gguf", reason="gguf is not installed")

from candle_convert.runtime.cuda.kernel import signature
from candle_convert.runtime.cuda.machine import SIMULATED
from on_device import said

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "ops")]

FULL = os.environ.get("CANDLE_FULL") == "1"
CHIPS = [(7, 5), (8, 0), (9, 0), (12, 1)]
SAMPLE = {(7, 5): ["few rows"], (8, 0): ["brains"], (9, 0): [], (12, 1): ["few rows of groups"]}


@pytest.mark.parametrize("script", [f"{name}_on_device.py" for name in ("tensor", "attention", "cached", "narrow", "nbits", "various")])
def test_kernels_compute_what_numpy_does(script):
    said(HERE / script)


@pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing")
@pytest.mark.parametrize("cc", CHIPS, ids=lambda cc: f"sm_{cc[0]}{cc[1]}")
def test_kernels_assemble(cc):
    """Registers of the products suffice but for some bytes; attention on tensor cores spills some hundred on 7.5 and 8.0."""
    from every_kernel import assembled
    from tensor_kernels import LARGE

    for name in LARGE if FULL else SAMPLE[cc]:
        launch, *_ = LARGE[name]()
        if launch.kernel.least <= cc:
            said = assembled(launch.kernel.ptx(signature(launch.arguments), cc), cc)
            spilled = int(re.search(r"(\d+) bytes spill stores", said)[1])
            assert spilled <= (512 if name.startswith("prompt") else 64), (name, said)
