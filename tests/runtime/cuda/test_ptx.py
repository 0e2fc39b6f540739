"""Every device kernel compiles to PTX, for four generations of cards; needs numba-cuda with its toolkit, and no card."""

import os
import sys
from itertools import islice
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from candle_convert.runtime.cuda.machine import SIMULATED

sys.path.insert(0, str(Path(__file__).parent))

import every_kernel

FULL = os.environ.get("CANDLE_FULL") == "1"
SAMPLE = 16
"""Of what kernels come from, one in so many is looked at, and one kernel of it, unless CANDLE_FULL=1."""

pytestmark = [pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing"), pytest.mark.timeout(7200 if FULL else 300)]


def test_kernels_compile():
    """In full, what has passed before is known (`every_kernel.py` does the same in slices)."""
    if FULL:
        counts = every_kernel.swept(every_kernel.cache_file(), 7000)
        assert not counts["wrong"], counts["wrong"]
        assert not counts["left"]
        assert counts["kernels"] > 1000
        return
    looked = 0
    for name, kernels_of in islice(every_kernel.sources(), 3, None, SAMPLE):
        if name.startswith("encoder"):
            continue
        pairs = kernels_of()
        for kernel, kinds in pairs[:1]:
            looked += 1
            assert every_kernel.wrong(kernel, kinds, encoder=False) is None
    assert looked > 10


def test_there_are_kernels():
    names = [name for name, _ in every_kernel.sources()]
    assert len(names) > 250
    assert sum(name.startswith("encoder") for name in names) > 20
