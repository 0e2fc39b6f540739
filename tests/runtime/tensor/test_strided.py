"""Strided views against numpy's own."""

import numpy as np
import pytest
from candle_convert.runtime.base.errors import FormatError
from candle_convert.runtime.tensor import strided as module
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.strided import is_row_order, strided, swapped

BASE = np.arange(4 * 5 * 6, dtype=np.int32).reshape(4, 5, 6)
VIEWS = [
    BASE,
    BASE.T,
    BASE.transpose(1, 0, 2),
    BASE[1:3, ::2, 1:],
    BASE[2, 3, 4:5],
    np.broadcast_to(BASE[0, 0], (7, 6)),
    BASE[0, 0, 5:].reshape(()),
    BASE[:, :0],
]


@pytest.mark.parametrize("gather", [1, module.GATHER])
@pytest.mark.parametrize("block", [4, 40, module.BLOCK])
@pytest.mark.parametrize("view", VIEWS, ids=lambda view: f"{view.shape}{view.strides}")
def test_every_range_is_what_numpy_gives(view, block, gather, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)
    monkeypatch.setattr(module, "GATHER", gather)
    strides = tuple(stride // 4 for stride in view.strides)
    offset = (view.__array_interface__["data"][0] - BASE.__array_interface__["data"][0]) // 4 if view.size else 0
    storage = strided(Held(BASE.tobytes()), 4, view.shape, strides, offset)
    expected = np.ascontiguousarray(view).tobytes()
    assert storage.nbytes == len(expected)
    for start in range(0, len(expected), 12):
        for stop in range(start + 4, len(expected) + 1, 52):
            assert bytes(storage.read(start, stop)) == expected[start:stop]
    assert is_row_order(view.shape, strides) == view.flags.c_contiguous or not view.size


@pytest.mark.parametrize(
    ("shape", "strides", "offset"), [((4,), (1,), 118), ((2,), (-1,), 3), ((1,), (1,), -1), ((3, 61), (60, 1), 0)]
)
def test_views_outside_the_storage_are_refused(shape, strides, offset):
    with pytest.raises(FormatError):
        strided(Held(BASE.tobytes()), 4, shape, strides, offset)


def test_swapped_is_big_endian():
    assert bytes(swapped(Held(BASE.astype(">i4").tobytes()), 4).read(4, 44)) == BASE.tobytes()[4:44]
