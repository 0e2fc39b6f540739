"""Operations that scripts use now and then: dtypes, shapes, values and gradients are torch's."""

import candle_convert as cc
import pytest
import torch
from candle_convert.tests.oracles.torch_tensors import compare, evaluated, example

FLOATS = [
    "m.fmax(a, b / (b > 0))", "m.fmin(a / (a > 0), b)", "a.cummax(1)", "a.cummin(0)", "(a / (a > 0)).cummax(1)",
    "a.logcumsumexp(1)", "a.diff()", "a.diff(2, 0)", "a.diff(prepend=b)", "m.kron(a, b)", "m.kron(a[0], b)",
    "m.block_diag(a, b[0], b[0, 0])", "m.dstack([a, b])", "m.atleast_3d(a)", "m.hsplit(a, 2)", "m.vsplit(a, [1])",
    "a.signbit()", "m.copysign(a, b)", "m.heaviside(a.round(), b)", "m.ldexp(a, m.tensor(2))", "m.sinc(a)",
    "m.logaddexp2(a, b)", "m.masked_scatter(a, a > 0, b)", "m.slice_scatter(a, b[:, :2], 1, 0, 4, 2)",
    "a.index_put((m.tensor([0, 2]), m.tensor([1, 1])), b[0, :2])", "m.select_scatter(a, b[0], 0, -1)", "m.cov(a)",
    "m.trapezoid(a, dx=2.0)", "m.trapz(a, b[0])", "m.vander(a[0], 3)", "m.renorm(a, 2, 0, 1.0)", "m.histc(a, 4)",
    "m.cartesian_prod(a[0], b[0])", "m.combinations(a[0])", "m.unique_consecutive(a.round(), return_counts=True)",
    "m.quantile(a[0, 0], 0.3, 0)", "m.quantile(a[0, 0], m.tensor([0.2, 0.4], dtype=a.dtype), -1, True)",
    "m.nanquantile(a[0, 0], 0.3, 0, True)", "m.nanmedian(a[0, 0])", "m.nanmedian(a[0, 0], -1, True).values",
    "m.histogramdd(a[:, :2], [m.tensor([2, -1, 1.0, 0.5], dtype=a.dtype), b[0].detach()]).hist",
    "m.float_power(a.abs(), 2)", "m.corrcoef(a)", "a.new_zeros(2).copy_(m.logspace(0, 1, 2))",
]  # fmt: skip
INTEGERS = [
    "a << 2", "a << b.abs()", "a >> 1", "a >> b.abs()", "3 << b.abs()", "m.bitwise_left_shift(a, 70)", "a.diff()",
    "m.unique_consecutive(a, return_inverse=True, dim=1)", "m.fmax(a, b)", "a.cummax(1)", "a.signbit()",
]  # fmt: skip
WITHOUT = ("signbit", "unique", "heaviside", "vander", "histogramdd")
"""Operations whose gradients torch does not have."""
VALUES = {"a": 0, "b": 1}


def both(expression, dtype):
    """What torch computes of two matrices, and what we do."""
    values = {name: example((3, 4), dtype, seed) for name, seed in VALUES.items()}
    mine = evaluated(expression, cc, values)  # first: methods of torch write into the values
    compare(evaluated(expression, torch, values), mine)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("expression", FLOATS)
def test_floats(expression, dtype):
    both(expression, dtype)


@pytest.mark.parametrize("dtype", ["i64", "i8", "u8"])
@pytest.mark.parametrize("expression", INTEGERS)
def test_integers(expression, dtype):
    both(expression, dtype)


@pytest.mark.parametrize("expression", [each for each in FLOATS if not any(name in each for name in WITHOUT)])
def test_gradients(expression):
    """Those of torch; where torch gives None, ours are None or 0."""
    found = []
    for m in (torch, cc):
        values = {name: example((3, 4), "f64", seed) for name, seed in VALUES.items()}
        values = {name: value if m is torch else cc.from_dlpack(value) for name, value in values.items()}
        leaves = [value.requires_grad_() for value in values.values()]
        made = eval(expression, {"m": m, **values})
        parts = [each for each in (made if isinstance(made, tuple | list) else [made]) if each.requires_grad]
        for each in parts:
            (each * m.arange(1.0, each.numel() + 1, dtype=m.float64).reshape(each.shape)).nansum().backward()
        found.append([each.grad for each in leaves])
    for theirs, ours in zip(*found, strict=True):
        if theirs is None or ours is None:
            assert ours is None or not ours.any()
            assert theirs is None or not theirs.any()
        else:
            compare(theirs, ours)
