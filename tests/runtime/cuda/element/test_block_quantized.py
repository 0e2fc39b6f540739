"""Quantized weights stay quantized on the device: products, gathered rows and experts of every block type."""

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("gguf", reason="gguf is not installed")

from candle_convert.runtime.cuda.device.device import cuda_support
from candle_convert.runtime.tensor.block_codec import codecs
from candle_convert.runtime.tensor.dtype import DTYPES
from candle_convert.tests.builders.paths import DEVICE_SCRIPTS
from candle_convert.tests.builders.sampling import full
from candle_convert.tests.device_scripts.runner import run_script

SAMPLED = ["q8_0", "q4_k", "iq1_m", "tq1_0"]


def on_all():
    return full() or bool(cuda_support().devices)


def test_blocks_on_the_device():
    """One of each family unless CANDLE_FULL=1."""
    names = sorted(dtype.name for dtype in codecs() if dtype.name in DTYPES) if on_all() else SAMPLED
    assert run_script(DEVICE_SCRIPTS / "quantized_matmul.py", *names).split() == [*names, "experts", "once"]


@pytest.mark.skipif("not on_all()", reason="a language model takes the simulator half a minute: CANDLE_FULL=1")
def test_a_language_model_on_the_device():
    """Its weights are blocks, its caches stay on the device and are written in place, and nothing runs on the CPU."""
    assert run_script(DEVICE_SCRIPTS / "quantized_language_model.py").splitlines() == ["on the CPU []", "blocks True"]
