"""Corners of operations, as torch has them: bounds, empty dims, NaN, dtypes that do not fit, and what is refused."""

import candle_convert as cc
import pytest
import torch
from candle_convert.tests.oracles.torch_tensors import compare, evaluated, example

FLOATS = [
    "a // m.inf", "a // -m.inf", "a // -2.5", "a / 2**40", "a.clamp(max=m.nan)", "a.clamp(-1, m.tensor(m.nan))",
    "a.masked_fill(a > 0, 0.1)", "m.scatter(a, 0, m.zeros_like(a, dtype=m.int64), 0.1)", "m.column_stack([a[0], a[1]])",
    "a[:0].chunk(3)", "a.median()", "(a / (a > 0)).median(1)", "a[:0].median()", "a.narrow(1, -2, 1)",
    "m.unique(a.round(), return_inverse=True, return_counts=True)", "m.unique(a.round(), dim=1)",
    "m.searchsorted(a.sort()[0], a)", "m.repeat_interleave(a, m.tensor([1, 0, 2]), dim=0)", "a[m.tensor(True)]",
    "m.xlogy(a, m.tensor(2.4, dtype=m.float16))", "m.isclose(a > 0, a > 1)", "a[m.tensor([1, 0, 1], dtype=m.uint8)]",
    "m.nn.functional.cosine_similarity(a, (a * 40).to(m.int8), 1)", "a[0, 0].kthvalue(1)",
    "m.scatter_reduce(a[0, 0], 0, m.tensor(0), a[0, 1], 'amax')", "m.tensordot(a, a[:, :0], dims=([0], [0]))",
    "m.nn.functional.group_norm(a, 2)", "m.sign((a / a * a).where(a > 0, m.tensor(m.nan, dtype=a.dtype)))",
    "a.index_add(0, m.tensor([2, 0]), a[:2], alpha=0.5)",
]  # fmt: skip
INTEGERS = [
    "300 / a",
    "a ** m.tensor([-1, 2, 0, 3], dtype=a.dtype)",
    "m.logit(a)",
    "a.fill_(2.5)",
    "a[0].clamp(max=m.nan)",
    "m.scatter_reduce(a, 0, m.zeros_like(a, dtype=m.int64), a, 'amin', include_self=False)",
    "m.scatter_reduce(a, 0, m.zeros_like(a, dtype=m.int64), a, 'mean')",
]
REFUSED = [
    "a.long().div_(2)", "a.long().add_(0.5)", "a.long().fill_(m.nan)", "a.byte().masked_fill(a > 0, 300)",
    "m.trace(a[None])", "m.outer(a, a)", "m.addmm(a[0], a[0], a[0])", "a.flatten(1, 0)", "m.arange(3, 0)",
    "m.nn.functional.one_hot(m.tensor([0, 2]), 2)", "m.nn.functional.one_hot(m.tensor([0, -1]), 2)",
    "m.nn.functional.pad(a, (4, 0), mode='reflect')", "a.narrow(1, 2, 9)", "m.tensordot(a, a, dims=1)",
    "m.einsum('ij,ij->i', a, a.double())", "a.long().norm()", "a[:, :0].median(1)", "a.chunk(0)",
    "m.repeat_interleave(a, m.tensor([1, 2]), dim=0)", "a[m.tensor([1, 0], dtype=m.uint8)]",
    "m.gather(a, 1, m.tensor([[-1]]))", "a.index_select(0, m.tensor([-1]))", "a.index_add(0, m.tensor([-1]), a[:1])",
    "a.scatter(1, m.tensor([[-2]]), 1.0)", "m.nn.functional.embedding(m.tensor([-1]), a)",
    "m.nn.functional.embedding(m.tensor([0]), a[None])", "a.long() // 0", "a.long() % m.tensor(0)",
    "m.div(a.long(), 0, rounding_mode='trunc')", "m.fmod(a.long(), 0)",
]  # fmt: skip


class Named:
    """A module with torch's constants."""

    nan, inf = float("nan"), float("inf")

    def __init__(self, module):
        self.module = module

    def __getattr__(self, name):
        return getattr(self.module, name)


def both(expression, value):
    """What torch computes, and what we do."""
    mine = evaluated("a", cc, {"a": value})
    theirs = eval(expression, {"m": torch, "a": value.clone()})
    compare(theirs, eval(expression, {"m": Named(cc), "a": mine}))


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
@pytest.mark.parametrize("expression", FLOATS)
def test_floats(expression, dtype):
    both(expression, example((3, 4), dtype))


@pytest.mark.parametrize("dtype", ["i64", "i8", "u8"])
@pytest.mark.parametrize("expression", INTEGERS)
def test_integers(expression, dtype):
    both(expression, example((3, 4), dtype))


@pytest.mark.parametrize("expression", REFUSED)
def test_refused(expression):
    value = example((3, 4), "f32")
    with pytest.raises((RuntimeError, IndexError, TypeError)):
        eval(expression, {"m": torch, "a": value})
    with pytest.raises((cc.Error, IndexError, TypeError)):
        eval(expression, {"m": Named(cc), "a": evaluated("a", cc, {"a": value})}).numpy()
