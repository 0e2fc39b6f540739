"""Shapes of tensors: what is taken of them is what torch.Size gives."""

import operator

import candle_convert as cc
import pytest
import torch

EXPRESSIONS = {
    "slice": lambda s: s[1:],
    "steps": lambda s: s[::-2],
    "item": lambda s: s[-1],
    "sum": lambda s: operator.add(s, (5, 6)),
    "sum of slices": lambda s: s[:1] + s[2:],
    "product": lambda s: s[:2] * 2,
    "numel": lambda s: s[:2].numel(),
    "equal": lambda s: s[:2] == (2, 3),
}


@pytest.mark.parametrize("case", EXPRESSIONS)
def test_it_behaves_as_torch_size(case):
    found, expected = EXPRESSIONS[case](cc.ones(2, 3, 4).shape), EXPRESSIONS[case](torch.ones(2, 3, 4).shape)
    assert found == expected
    assert hasattr(found, "numel") == hasattr(expected, "numel")
