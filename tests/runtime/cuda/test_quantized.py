"""Quantized weights stay quantized on the device: products, rows by index and experts of every block type, in a process of its own."""

import os
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("gguf", reason="gguf is not installed")

from candle_convert.ops.quants import codecs
from candle_convert.runtime.cuda.machine import state
from on_device import said

FULL = os.environ.get("CANDLE_FULL") == "1" or bool(state().devices)
SAMPLED = ["q8_0", "q4_k", "iq1_m", "tq1_0"]


def test_blocks_on_the_device():
    """One of each family unless CANDLE_FULL=1."""
    names = sorted(dtype.name for dtype in codecs()) if FULL else SAMPLED
    assert said(Path(__file__).parent / "quantized_on_device.py", *names).split() == [*names, "experts", "once"]


@pytest.mark.skipif(not FULL, reason="a language model takes the simulator half a minute: CANDLE_FULL=1")
def test_a_language_model_on_the_device():
    """Its weights are blocks, its caches stay on the device and are written in place, and nothing runs on the CPU."""
    assert said(Path(__file__).parent / "language_on_device.py").splitlines() == ["on the CPU []", "blocks True"]
