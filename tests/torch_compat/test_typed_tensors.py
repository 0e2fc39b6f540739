"""Classes of tensors by dtype."""

import candle_convert as cc
import pytest
import torch


@pytest.mark.parametrize(
    "name", ["FloatTensor", "DoubleTensor", "HalfTensor", "LongTensor", "ByteTensor", "BoolTensor"]
)
def test_classes(name):
    ours, theirs = getattr(cc, name), getattr(torch, name)
    assert ours([1, 0]).tolist() == theirs([1, 0]).tolist()
    assert tuple(ours(2, 3).shape) == tuple(theirs(2, 3).shape)
    assert ours([1]).type() == theirs([1]).type()
    assert isinstance(ours([1]), ours)
    assert not isinstance(cc.zeros(1, dtype=cc.int16), ours)
    assert cc.zeros(1, dtype=cc.int16).type(ours).dtype == ours.dtype
