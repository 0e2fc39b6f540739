"""Every device kernel compiles to PTX for four GPU generations; needs numba-cuda with its toolkit, but not a GPU."""

from itertools import cycle, islice

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from candle_convert.runtime.cuda.device.device import SIMULATED
from candle_convert.tests.builders.sampling import full
from candle_convert.tests.device_scripts import every_kernel

FULL = full()
PATTERNS = [
    ("operator  Sigmoid", "exponential_activation."),
    ("operator  Softmax", "fold of "),
    ("operator  CumSum", "scan of "),
    ("operator  ScatterND", "scatter by "),
    ("operator  Einsum", "product of "),
    ("operator  Unique", "order of entries"),
    ("operator com.microsoft PagedAttention", "attention by tiles of keys in pages"),
    ("operator  NonZero", "places that are not zero"),
    ("operator  RandomNormal", "normal numbers"),
    ("operator  NonMaxSuppression", "boxes that others do not cover"),
    ("blocks q8_0", "floats by rows"),
    ("blocks q8_0", "integers by rows"),
    ("packed int4", "quantized_cuda._real"),
    ("groups of few bits", "floats by rows of 4 bits"),
]
"""What kernels come from, and how the title begins of one for each way to launch; encoders and tensor cores are looked
at beside their tests."""
SAMPLE = 40
"""Of the rest one in so many is looked at, and one kernel of it, unless CANDLE_FULL=1; which ones, a digest of all
sources decides."""

pytestmark = [pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing"), pytest.mark.timeout(7200)]


def sampled():
    """(kernel, types of its arguments) pairs."""
    sources = dict(every_kernel.sources())
    for name, title in PATTERNS:
        yield next(pair for pair in sources[name]() if pair[0].title.startswith(title))
    turn = int(every_kernel.planners()[:8], 16)
    for name, kernels_of in islice(sources.items(), turn % SAMPLE, None, SAMPLE):
        pairs = kernels_of() if name.startswith("operator") else []
        if pairs:
            yield pairs[turn % len(pairs)]


def test_kernels_compile():
    """In full, what has passed before is known (`every_kernel.py` does the same in slices). Of a sample each for one
    chip, in turn."""
    if FULL:
        counts = every_kernel.swept(every_kernel.cache_file(), 7000)
        assert not counts["wrong"], counts["wrong"]
        assert not counts["left"]
        assert counts["kernels"] > 1000
        return
    looked = set()
    for (kernel, kinds), cc in zip(sampled(), cycle(every_kernel.CHIPS), strict=False):
        chip = max(cc, kernel.least)
        looked.add(chip)
        assert every_kernel.wrong(kernel, kinds, encoder=False, chips=[chip]) is None
    assert looked == set(every_kernel.CHIPS)


def test_there_are_kernels():
    names = [name for name, _ in every_kernel.sources()]
    assert len(names) > 250
    assert sum(name.startswith("encoder") for name in names) > 20
