"""Casts that compiled code does, against NumPy's."""

import numpy as np
import pytest
from candle_convert.runtime.cast import WIDENED_FROM, convert
from candle_convert.runtime.dtype import F32
from candle_convert.runtime.machine import Stored

WIDEN = Stored("runtime.widen", "widen")
PATTERNS = np.arange(1 << 16, dtype=np.uint16)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 1 << 16])
def test_every_half_is_widened_as_numpy_does(count):
    halves = PATTERNS[-count:]
    values = np.empty(count, np.float32)
    WIDEN(halves.ctypes.data, values.ctypes.data, count)
    assert (values.view(np.uint32) == halves.view(np.float16).astype(np.float32).view(np.uint32)).all()


@pytest.mark.parametrize("count", [WIDENED_FROM - 1, WIDENED_FROM, WIDENED_FROM + 1])
def test_large_arrays_are_converted_the_same(count):
    halves = np.frombuffer(PATTERNS[:count].tobytes(), np.float16)
    found = convert(halves, F32)
    assert (found.view(np.uint32) == halves.astype(np.float32).view(np.uint32)).all()
    assert found.flags.writeable
