"""Decompositions, solutions and norms of matrices, and their gradients, are torch's."""

import math

import candle_convert as cc
import numpy as np
import pytest
import torch

RANDOM = np.random.default_rng(0)
A = RANDOM.normal(size=(2, 4, 4))
S = A @ A.transpose(0, 2, 1) + np.eye(4)
B = RANDOM.normal(size=(2, 4, 3))
TALL = RANDOM.normal(size=(5, 3))

OF_SYMMETRIC = ("cholesky_solve", "cholesky_inverse", "eigh", "eigvalsh")
"""Functions of symmetric matrices, by which alone gradients are determined."""
FUNCTIONS = {
    "inv": lambda t, s, b: t.linalg.inv(s),
    "solve": lambda t, s, b: t.linalg.solve(s, b),
    "solve vector": lambda t, s, b: t.linalg.solve(s, b[:, :, 0]),
    "solve right": lambda t, s, b: t.linalg.solve(s, b.mT, left=False),
    "solve_triangular": lambda t, s, b: t.linalg.solve_triangular(s, b, upper=True),
    "unitriangular": lambda t, s, b: t.linalg.solve_triangular(s, b, upper=False, unitriangular=True),
    "cholesky": lambda t, s, b: t.linalg.cholesky((s + s.mT) / 2),
    "cholesky_solve": lambda t, s, b: t.cholesky_solve(b, t.linalg.cholesky(s)),
    "cholesky_inverse": lambda t, s, b: t.cholesky_inverse(t.linalg.cholesky(s[0])),
    "logdet": lambda t, s, b: t.logdet(s),
    "slogdet": lambda t, s, b: t.linalg.slogdet(s)[1],
    "eigvalsh": lambda t, s, b: t.linalg.eigvalsh(s),
    "eigh": lambda t, s, b: t.linalg.eigh(s)[1].abs(),
    "svdvals": lambda t, s, b: t.linalg.svdvals(b),
    "svd": lambda t, s, b: t.cat([each.abs().flatten() for each in t.linalg.svd(b, full_matrices=False)]),
    "svd wide": lambda t, s, b: t.cat([each.abs().flatten() for each in t.linalg.svd(b.mT, full_matrices=False)]),
    "qr": lambda t, s, b: t.cat([each.abs().flatten() for each in t.linalg.qr(b)]),
    "pinv": lambda t, s, b: t.linalg.pinv(b),
    "matrix_power": lambda t, s, b: t.linalg.matrix_power(s, 3) + t.linalg.matrix_power(s, -2),
    "matrix_exp": lambda t, s, b: t.matrix_exp(s / 4),
    "multi_dot": lambda t, s, b: t.linalg.multi_dot([s[0], s[1], b[0]]),
    "cond": lambda t, s, b: t.linalg.cond(s),
    "kron": lambda t, s, b: t.kron(s, b[0]),
    "block_diag": lambda t, s, b: t.block_diag(s[0], b[0], b[0, 0]),
    "cov": lambda t, s, b: t.cov(b[0]) + t.corrcoef(b[0]),
    "addr": lambda t, s, b: t.addr(s[0], s[0, 0], s[0, 1], beta=2, alpha=3),
    **{
        f"norm {order}": lambda t, s, b, order=order: t.linalg.norm(b[0], order)
        for order in (None, "fro", "nuc", math.inf, -math.inf, 1, -1, 2, -2)
    },
    **{
        f"vector_norm {order}": lambda t, s, b, order=order: t.linalg.vector_norm(b, order, dim=1)
        for order in (1, 2, 3, 0.5, math.inf)
    },
    "matrix_norm dims": lambda t, s, b: t.linalg.matrix_norm(b, 1, dim=(0, 2), keepdim=True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name):
    found = []
    for t in (cc, torch):
        s, b = (t.tensor(each, requires_grad=True) for each in (S, B))
        result = FUNCTIONS[name](t, s, b)
        (result * t.arange(result.numel(), dtype=t.float64).reshape(result.shape)).sum().backward()
        grads = [np.zeros(each.shape) if each.grad is None else each.grad.numpy() for each in (s, b)]
        grads[0] = (
            grads[0] + grads[0].transpose(0, 2, 1) if name in ("cholesky_solve", "eigh", "eigvalsh") else grads[0]
        )
        grads[0] = grads[0] + grads[0].transpose(0, 2, 1) if name == "cholesky_inverse" else grads[0]
        found.append([result.detach().numpy(), *grads])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, 1e-6, 1e-8)


def test_without_gradients():
    for t in (cc, torch):
        tall = t.tensor(TALL)
        full = t.linalg.svd(tall)
        np.testing.assert_allclose((full[0][:, :3] @ t.diag(full[1]) @ full[2]).numpy(), TALL, atol=1e-12)
        assert [tuple(each.shape) for each in full] == [(5, 5), (3,), (3, 3)]
        assert tuple(t.linalg.qr(tall, "complete")[0].shape) == (5, 5)
        u, s, v = t.svd(tall)
        np.testing.assert_allclose((u @ t.diag(s) @ v.T).numpy(), TALL, atol=1e-12)
    ours, theirs = (t.linalg.lstsq(t.tensor(TALL), t.ones(5, 1, dtype=t.float64), driver="gelsd") for t in (cc, torch))
    np.testing.assert_allclose(ours.solution.numpy(), theirs.solution.numpy(), 1e-9)
    left = np.linalg.lstsq(TALL, np.ones((5, 1)), rcond=None)[1]
    np.testing.assert_allclose(ours.residuals.numpy(), left, 1e-9)
    rank = cc.linalg.matrix_rank(cc.tensor(TALL @ np.diag([1.0, 1.0, 0.0])))
    assert rank.item() == 2
    np.testing.assert_allclose(*(t.linalg.vander(t.tensor([1.0, 2.0, 3.0])).numpy() for t in (cc, torch)))
    np.testing.assert_allclose(
        *(t.linalg.cross(t.tensor(TALL), t.tensor(TALL[::-1].copy())).numpy() for t in (cc, torch)), atol=1e-15
    )


def test_second_derivative():
    x = cc.tensor(S[0], requires_grad=True)
    assert cc.autograd.gradgradcheck(cc.linalg.inv, (x,), atol=1e-4)


@pytest.mark.parametrize(
    "make", [lambda x: cc.linalg.inv(x), lambda x: cc.linalg.solve(x, x), lambda x: cc.cholesky(-x)]
)
def test_singular(make):
    with pytest.raises(RuntimeError, match="E-TENSOR-LINALG"):
        make(cc.ones(2, 2))


def test_shapes_and_dtypes():
    with pytest.raises(cc.UsageError, match="n, n"):
        cc.linalg.inv(cc.ones(2, 3))
    with pytest.raises(cc.UsageError, match="expected f32, f64, c64 or c128"):
        cc.linalg.inv(cc.ones(2, 2, dtype=cc.float16))
    with pytest.raises(cc.UsageError, match="norm"):
        cc.linalg.matrix_norm(cc.ones(2, 2), 3)
