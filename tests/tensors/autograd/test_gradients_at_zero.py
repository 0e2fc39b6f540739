"""Norms, deviations and spectra where their formulas divide by 0: gradients are torch's, mostly 0."""

import candle_convert as cc
import pytest
import torch
from candle_convert.tests.oracles.torch_tensors import compare

ZEROS = {"zeros": [[0.0, 0.0], [0.0, 0.0]], "column": [[0.0, 3.0], [0.0, 4.0]], "equal": [[2.0, 0.0], [0.0, 2.0]]}
NORMS = [
    f"{function.format(p=p)}"
    for p in (0.5, 1, 1.5, 2, 3, "m.inf", "-m.inf", -1, -2)
    for function in (
        "m.norm(a, {p})", "m.norm(a, {p}, 1)", "m.linalg.vector_norm(a, {p}, 0)", "m.dist(a, a * 1, {p})",
        "m.nn.functional.normalize(a, {p}, 1, 0.1)", "m.nn.functional.pairwise_distance(a, a.flip(0), {p}, 0.1)",
    )
]  # fmt: skip
OTHERS = [
    *(f"m.cdist(a, a * 1, {p})" for p in (0, 0.5, 1, 2, 3)), *(f"m.renorm(a, {p}, 0, 1.0)" for p in (0.5, 1, 2, 3)),
    "a.norm()", "m.linalg.norm(a)", "m.linalg.matrix_norm(a)", "m.linalg.matrix_norm(a, 'nuc')",
    "m.linalg.matrix_norm(a, 2)", "m.linalg.matrix_norm(a, -2)", "m.linalg.svdvals(a)", "m.linalg.eigvalsh(a)",
    "m.linalg.eigvalsh(a, UPLO='U')",
    "a.std()", "a.std(0)", "m.std_mean(a, 1)[0]", "a.var(1)", "m.atan2(a, a.flip(0))", "m.matrix_power(a, 0)",
    "m.nn.functional.cosine_similarity(a, a.flip(0), 1)", "m.linalg.vector_norm(a, 0)",
]  # fmt: skip


class Named:
    """A module with torch's constants."""

    inf = float("inf")

    def __init__(self, module):
        self.module = module

    def __getattr__(self, name):
        return getattr(self.module, name)


@pytest.mark.parametrize("values", ZEROS)
@pytest.mark.parametrize("formula", NORMS + OTHERS)
def test_gradients(formula, values):
    found = []
    for m in (torch, cc):
        a = m.tensor(ZEROS[values], dtype=m.float64, requires_grad=True)
        y = eval(formula, {"m": Named(m), "a": a})
        y.sum().backward()
        found.append((y, m.zeros_like(a) if a.grad is None else a.grad))
    compare(found[0][0], found[1][0].detach())
    compare(found[0][1], found[1][1].detach())


@pytest.mark.parametrize("formula", ["m.linalg.pinv(a)", "m.linalg.pinv(a @ a.mT)", "m.linalg.pinv(a[:, :1])"])
def test_pseudo_inverse_of_equal_singular_values(formula):
    found = []
    for m in (torch, cc):
        a = m.tensor([[2.0, 0.0], [0.0, 2.0], [0.0, 0.0]], dtype=m.float64, requires_grad=True)
        y = eval(formula, {"m": m, "a": a})
        weights = m.arange(1.0, y.numel() + 1, dtype=m.float64).reshape(y.shape)
        (first,) = m.autograd.grad((y * weights).sum(), a, create_graph=True)
        first.square().sum().backward()
        found.append((first.detach(), a.grad))
    compare(*(each[0] for each in found))
    compare(*(each[1] for each in found), rtol=1e-8, atol=1e-8)


def test_quantile_by_its_place():
    found = []
    for m in (torch, cc):
        x, q = m.tensor([1.0, 5.0, 9.0, 2.0], requires_grad=True), m.tensor([0.3, 0.6, 1.0], requires_grad=True)
        m.quantile(x, q).sum().backward()
        found.append((x.grad, q.grad))
    compare(*(each[0] for each in found))
    compare(*(each[1] for each in found))


def test_filled_twice():
    found = []
    for m in (torch, cc):
        x, value = m.ones((2, 3), requires_grad=True), m.tensor(4.0, requires_grad=True)
        y = m.index_fill(x, 1, m.tensor([0, 2, 0]), value)
        (y * m.arange(1.0, 7.0).reshape(2, 3)).sum().backward()
        found.append((y.detach(), x.grad, value.grad))
    compare(*found)
