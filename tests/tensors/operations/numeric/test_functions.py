"""Functions of elements, dims and parts give what torch's give."""

import candle_convert as cc
import numpy as np
import pytest
import torch

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(3, 4)), RANDOM.normal(size=(3, 4))
HOLED = np.where(X > 0.8, np.nan, X)
NUMBERS = np.array([12, 18, 18, 7, 7, 7, 12])

FUNCTIONS = {
    "heaviside": lambda t, x, y: t.heaviside(x * (x > 0), t.tensor(0.5, dtype=t.float64)),
    "copysign": lambda t, x, y: t.copysign(x, y),
    "signbit": lambda t, x, y: t.signbit(x),
    "sinc": lambda t, x, y: t.sinc(x * (x > 0)),
    "float_power": lambda t, x, y: t.float_power(x.abs().float(), 2),
    "fmax": lambda t, x, y: t.fmax(t.tensor(HOLED), y) + t.fmin(t.tensor(HOLED), y),
    "ldexp": lambda t, x, y: t.ldexp(x, t.tensor([1, 2, 3, 4])),
    "gcd": lambda t, x, y: t.gcd(t.tensor(NUMBERS), t.tensor([6])) + t.lcm(t.tensor(NUMBERS), t.tensor([6])),
    "shifts": lambda t, x, y: (t.tensor(NUMBERS) << 2) + (t.tensor(NUMBERS) >> 1),
    "infinities": lambda t, x, y: t.isposinf(x / 0).long() + 2 * t.isneginf(x / 0) + 4 * t.isreal(x),
    "hardshrink": lambda t, x, y: t.hardshrink(x, 0.3) if t is cc else t.nn.functional.hardshrink(x, 0.3),
    "prelu": lambda t, x, y: t.prelu(x, y[0]),
    "unravel_index": lambda t, x, y: t.stack(list(t.unravel_index(t.tensor([1, 7]), (3, 4)))),
    "cummax": lambda t, x, y: t.cat(list(t.cummax(x, 1))) + t.cat(list(t.cummin(x, 1))),
    "logcumsumexp": lambda t, x, y: t.logcumsumexp(x, 1),
    "diff": lambda t, x, y: x.diff(2) + x.diff(prepend=y[:, :1], append=y[:, 1:2])[:, :2],
    "trapezoid": lambda t, x, y: t.trapezoid(x) + t.trapezoid(x, dx=2) + t.trapezoid(x, t.arange(4.0) ** 2),
    "mode": lambda t, x, y: t.stack(list(t.mode(t.tensor(NUMBERS)))),
    "nanmedian": lambda t, x, y: t.nanmedian(t.tensor(HOLED), 1)[0] + t.nanmedian(t.tensor(HOLED)),
    "unique_consecutive": lambda t, x, y: t.cat(t.unique_consecutive(t.tensor(NUMBERS), True, True)),
    "unique": lambda t, x, y: t.cat(t.unique(t.tensor(NUMBERS), return_inverse=True, return_counts=True)),
    "histc": lambda t, x, y: t.histc(x, 5) + t.histc(x, 5, -1, 1),
    "cartesian_prod": lambda t, x, y: t.cartesian_prod(x[0], y[0, :2]),
    "combinations": lambda t, x, y: t.combinations(x[0], 3).sum(1).sum() + t.combinations(x[0], 2, True),
    "logspace": lambda t, x, y: t.logspace(0, 2, 5) + t.vander(t.tensor([2.0]), 5),
    "hann_window": lambda t, x, y: t.hann_window(8) + t.hamming_window(8, periodic=False) + t.blackman_window(8),
    "splits": lambda t, x, y: t.hsplit(x, 2)[1].sum() + t.vsplit(x, [1])[1] + t.split_with_sizes(x, [1, 2])[1],
    "dstack": lambda t, x, y: t.dstack([x, y]) + t.atleast_3d(x),
    "scatters": lambda t, x, y: t.slice_scatter(t.select_scatter(x, y[:, 0], 1, 2), y[:1], 0, 1, 2),
    "diagonal_scatter": lambda t, x, y: t.diagonal_scatter(x, y[0, :3]),
    "masked_scatter": lambda t, x, y: t.masked_scatter(x, y > 0, y),
    "index_put": lambda t, x, y: x.index_put((t.tensor([0, 1]), t.tensor([2, 2])), y[0, :2]),
    "index_put added": lambda t, x, y: x.index_put((t.tensor([1, 1]),), y[:2], accumulate=True),
    "put": lambda t, x, y: x.put(t.tensor([1, 6]), y[0, :2]),
    "as_strided": lambda t, x, y: t.as_strided(x, (2, 3), (1, 2), 1),
    "sum_to_size": lambda t, x, y: x.sum_to_size(1, 4) + x.sum_to_size(3, 1),
    "vdot": lambda t, x, y: t.vdot(x[0], y[0]),
    "searchsorted": lambda t, x, y: t.searchsorted(x.sort(1)[0], y) + t.searchsorted(x[0].sort()[0], y, right=True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name):
    found, expected = (FUNCTIONS[name](t, t.tensor(X), t.tensor(Y)) for t in (cc, torch))
    assert tuple(found.shape) == tuple(expected.shape)
    assert str(found.numpy().dtype) == str(expected.numpy().dtype)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), 1e-6, 1e-7)


def test_in_place_and_facts():
    x = cc.tensor(X)
    x.apply_(lambda value: value + 1)
    np.testing.assert_allclose(x.numpy(), X + 1)
    assert cc.sigmoid_(x) is x
    y = cc.ones(2, requires_grad=True) * 2
    assert y.detach_() is y
    assert not y.requires_grad
    assert (x.storage_offset(), x.get_device(), x.is_sparse) == (0, -1, False)
    assert x.data_ptr() > 0
    with pytest.raises(cc.UsageError, match="CUDA"):
        x.cuda()
    assert cc.result_type(cc.ones(2, dtype=cc.int32), 1.5) == cc.float32
    assert cc.broadcast_shapes((2, 1), (3,)) == (2, 3)
    assert cc.scalar_tensor(2).dtype == cc.float32


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: cc.as_strided(cc.ones(3), (2, 3), (2, 1)), "beyond"),
        (lambda: cc.gcd(cc.ones(1), cc.ones(1)), "integers"),
    ],
)
def test_errors(make, why):
    with pytest.raises(RuntimeError, match=why):
        make()
