"""Memory for weights: arrays that do not overlap, of the lengths asked for."""

import itertools

import numpy as np
from candle_convert.runtime import reserve
from candle_convert.runtime.reserve import Reserve


def test_arrays_lie_apart_and_can_be_written():
    made = Reserve()
    sizes = [1, reserve.LEAST - 1, reserve.LEAST, reserve.LEAST + 5, reserve.CHUNK - reserve.LEAST, 3 * reserve.LEAST, reserve.CHUNK + 1]
    arrays = [made.take(size) for size in sizes]
    for number, (size, array) in enumerate(zip(sizes, arrays, strict=True)):
        assert array.shape == (size,)
        assert array.dtype == np.uint8
        array[: 1 << 16] = array[-1] = number
    assert all((array[: 1 << 16] == number).all() and array[-1] == number for number, array in enumerate(arrays))
    held = sorted((array.ctypes.data, array.ctypes.data + array.size) for array in arrays if array.size >= reserve.LEAST)
    assert all(start % 64 == 0 for start, _ in held)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(held))


def test_arrays_outlive_their_reserve():
    array = Reserve().take(reserve.LEAST)
    array[:] = 7
    Reserve().take(reserve.LEAST)[:] = 8
    assert (array == 7).all()
