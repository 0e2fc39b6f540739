"""Zeros by kernels: all bytes, and none around them."""

import ctypes

import numpy as np
import pytest
from candle_convert.ops.kernels.zero_fill import zero_fill
from candle_convert.runtime.simd.memory import STREAMED


@pytest.mark.parametrize("count", [1, 70, 1 << 15, STREAMED + 131])
@pytest.mark.parametrize("start", [0, 16, 17])
def test_bytes(count, start):
    memory = np.full(count + 64, 7, np.uint8)
    start += -memory.ctypes.data % 16
    block = zero_fill.block(target=memory.ctypes.data + start, nbytes=count)
    for part in (2, 0, 1):
        zero_fill.call(ctypes.addressof(block), part, 3)
    assert not memory[start : start + count].any()
    assert (memory[:start] == 7).all()
    assert (memory[start + count :] == 7).all()
