"""Memory for weights: arrays that do not overlap, of the lengths asked for."""

import itertools

import numpy as np
from candle_convert.runtime.base import huge_pages
from candle_convert.runtime.base.huge_pages import HugePages


def test_arrays_lie_apart_and_can_be_written():
    made = HugePages()
    sizes = [
        1,
        huge_pages.MIN_POOLED_NBYTES - 1,
        huge_pages.MIN_POOLED_NBYTES,
        huge_pages.MIN_POOLED_NBYTES + 5,
        huge_pages.CHUNK - huge_pages.MIN_POOLED_NBYTES,
        3 * huge_pages.MIN_POOLED_NBYTES,
        huge_pages.CHUNK + 1,
    ]
    arrays = [made.take(size) for size in sizes]
    for number, (size, array) in enumerate(zip(sizes, arrays, strict=True)):
        assert array.shape == (size,)
        assert array.dtype == np.uint8
        array[: 1 << 16] = array[-1] = number
    assert all((array[: 1 << 16] == number).all() and array[-1] == number for number, array in enumerate(arrays))
    held = sorted(
        (array.ctypes.data, array.ctypes.data + array.size)
        for array in arrays
        if array.size >= huge_pages.MIN_POOLED_NBYTES
    )
    assert all(start % 64 == 0 for start, _ in held)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(held))


def test_arrays_outlive_their_reserve():
    array = HugePages().take(huge_pages.MIN_POOLED_NBYTES)
    array[:] = 7
    HugePages().take(huge_pages.MIN_POOLED_NBYTES)[:] = 8
    assert (array == 7).all()
