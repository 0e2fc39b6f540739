"""Inverses, solutions and decompositions by LAPACK as functions with gradients.

M. Giles, "An extended collection of matrix derivative results", 2008; J. Townsend, "Differentiating the singular value
decomposition", 2016; S. Walter and L. Lehmann, arXiv:1009.6112; C. Boeddeker and others, "On the computation of
complex-valued gradients", arXiv:1701.00392.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ..autograd.function_class import Context, Function
from ..core.expression import shape_error
from ..core.grad_mode import GRAD_MODE
from ..core.promotion import as_complex
from ..core.registry import FUNCTIONS
from ..core.tensor import Tensor
from ..operations.creation import eye, made

CODE = "E-TENSOR-LINALG"


class LinAlgError(UsageError):
    """A matrix that has no inverse or decomposition of this kind."""


def computed(what: str, compute: Callable[..., Any], *inputs: Tensor, **options: Any) -> Any:
    """The results of a NumPy function as tensors."""
    try:
        found = compute(*[each.array() for each in inputs], **options)
    except np.linalg.LinAlgError as error:
        raise LinAlgError(CODE, None, f"{what} failed: {error}") from None
    except ValueError as error:
        shapes = " and ".join(repr(each.expression.type) for each in inputs)
        raise shape_error(f"{what} of {shapes}: {error}") from None
    return tuple(map(made, found)) if isinstance(found, tuple) else made(found)


def again(kind: type[Function], inputs: tuple[Any, ...], results: Any) -> Any:
    """The results, with gradients by the inputs where those are recorded."""
    return kind.apply(*inputs) if GRAD_MODE.enabled else results


def symmetric(x: Tensor) -> Tensor:
    return (x + x.mH) / 2


class InverseFunction(Function):
    @staticmethod
    def forward(ctx: Context, a: Tensor) -> Tensor:
        found: Tensor = computed("the inverse", np.linalg.inv, a)
        ctx.save_for_backward(a, found)
        return found

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        a, found = ctx.saved_tensors
        found = again(InverseFunction, (a,), found)
        return -(found.mH @ grad @ found.mH)


class SolveFunction(Function):
    @staticmethod
    def forward(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
        found: Tensor = computed("solving", np.linalg.solve, a, b)
        ctx.save_for_backward(a, b, found)
        return found

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, b, found = ctx.saved_tensors
        found = again(SolveFunction, (a, b), found)
        by_b = SolveFunction.apply(a.mH, grad)
        return -(by_b @ found.mH), by_b


class CholeskyFunction(Function):
    @staticmethod
    def forward(ctx: Context, a: Tensor) -> Tensor:
        found: Tensor = computed("the Cholesky decomposition", np.linalg.cholesky, a)
        ctx.save_for_backward(a, found)
        return found

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        a, factor = ctx.saved_tensors
        factor = again(CholeskyFunction, (a,), factor)
        inner = (factor.mH @ grad).tril()
        inverse = InverseFunction.apply(factor)
        return inverse.mH @ (inner + inner.tril(-1).mH) @ inverse / 2


class SvdFunction(Function):
    @staticmethod
    def forward(ctx: Context, a: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = tuple(computed("the singular value decomposition", lapack_svd, a))
        ctx.save_for_backward(a, *found)
        return found

    @staticmethod
    def backward(ctx: Context, by_u: Tensor, by_s: Tensor, by_vh: Tensor) -> Tensor:
        a, *results = ctx.saved_tensors
        u, s, vh = again(SvdFunction, (a,), results)
        v, by_v, count = vh.mH, by_vh.mH, s.shape[-1]
        one = eye(count, dtype=s.dtype)
        squares = s * s
        gaps = squares.unsqueeze(-2) - squares.unsqueeze(-1)
        factors = (1 - one) / (gaps + one)
        left, right = factors * (u.mH @ by_u), factors * (v.mH @ by_v)
        inner = (left + left.mH) * s.unsqueeze(-2) + s.unsqueeze(-1) * (right + right.mH) + one * by_s.unsqueeze(-1)
        if a.dtype.is_complex:  # singular vectors are known up to a phase, which the loss does not depend on
            phase = (u.conj() * by_u).sum(-2).imag / s
            inner = inner + FUNCTIONS["complex"](phase * 0, phase).unsqueeze(-2) * one
        found: Tensor = u @ inner @ vh
        if u.shape[-2] > count:
            away = by_u / s.unsqueeze(-2)
            found = found + (away - u @ (u.mH @ away)) @ vh
        if v.shape[-2] > count:
            away = by_v / s.unsqueeze(-2)
            found = found + u @ (away - v @ (v.mH @ away)).mH
        return found


def lapack_svd(a: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(np.linalg.svd(a, full_matrices=False))


class SingularValuesFunction(Function):
    """Singular values, differentiable even if some are equal, where singular vectors are not."""

    @staticmethod
    def forward(ctx: Context, a: Tensor) -> Tensor:
        u, s, vh = computed("the singular value decomposition", lapack_svd, a)
        ctx.save_for_backward(a, u, vh)
        found: Tensor = s
        return found

    @staticmethod
    def backward(ctx: Context, by_s: Tensor) -> Tensor:
        a, u, vh = ctx.saved_tensors
        u, _, vh = again(SvdFunction, (a,), (u, None, vh))
        return (u * by_s.unsqueeze(-2)) @ vh


class EighFunction(Function):
    """Eigenvalues and eigenvectors of a matrix of which one triangle is read; the gradient is symmetric, as in
    torch."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, triangle: str) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = tuple(eigen_of(a, triangle))
        ctx.triangle = triangle
        ctx.save_for_backward(a, *found)
        return found

    @staticmethod
    def backward(ctx: Context, by_w: Tensor, by_v: Tensor) -> tuple[Tensor, None]:
        a, *results = ctx.saved_tensors
        w, v = again(EighFunction, (a, ctx.triangle), results)
        one = eye(w.shape[-1], dtype=w.dtype)
        gaps = w.unsqueeze(-2) - w.unsqueeze(-1)
        inner = (1 - one) / (gaps + one) * (v.mH @ by_v) + one * by_w.unsqueeze(-1)
        return symmetric(v @ inner @ v.mH), None


def eigen_of(a: Tensor, triangle: str) -> Any:
    return computed("the eigenvalues", lambda x: tuple(np.linalg.eigh(x, UPLO="L" if triangle == "L" else "U")), a)


class EigenvaluesFunction(Function):
    """Eigenvalues alone, without the eigenvectors' gradients, which equal eigenvalues do not have."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, triangle: str) -> Tensor:
        w, v = eigen_of(a, triangle)
        ctx.triangle = triangle
        ctx.save_for_backward(a, v)
        found: Tensor = w
        return found

    @staticmethod
    def backward(ctx: Context, by_w: Tensor) -> tuple[Tensor, None]:
        a, v = ctx.saved_tensors
        _, v = again(EighFunction, (a, ctx.triangle), (None, v))
        return symmetric((v * by_w.unsqueeze(-2)) @ v.mH), None


class EigFunction(Function):
    """Complex eigenvalues and eigenvectors of any square matrix."""

    @staticmethod
    def forward(ctx: Context, a: Tensor) -> tuple[Tensor, ...]:
        kind = as_complex(a.dtype).as_numpy()
        found: tuple[Tensor, ...] = tuple(
            computed("the eigenvalues", lambda x: tuple(each.astype(kind) for each in np.linalg.eig(x)), a)
        )
        ctx.save_for_backward(a, *found)
        return found

    @staticmethod
    def backward(ctx: Context, by_w: Tensor, by_v: Tensor) -> Tensor:
        a, *results = ctx.saved_tensors
        w, v = again(EigFunction, (a,), results)
        one = eye(w.shape[-1], dtype=w.dtype)
        gaps = (w.unsqueeze(-2) - w.unsqueeze(-1)).conj()
        inner = v.mH @ by_v
        lengths = inner.diagonal(0, -2, -1).real.unsqueeze(-2)  # vectors stay of length 1
        inner = (1 - one) / (gaps + one) * (inner - v.mH @ (v * lengths)) + one * by_w.unsqueeze(-1)
        found = SolveFunction.apply(v.mH, inner @ v.mH)
        return found if a.dtype.is_complex else found.real


def one_triangle(a: np.ndarray) -> np.ndarray:
    """Symmetric or Hermitian matrices by their lower triangles."""
    below = np.tril(a, -1)
    return below + np.swapaxes(below, -1, -2).conj() + np.eye(a.shape[-1], dtype=a.real.dtype) * a.real


class PseudoInverseFunction(Function):
    """Equal singular values have gradients: G. Golub and V. Pereyra, "The differentiation of pseudo-inverses", 1973."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, limits: tuple[np.ndarray, np.ndarray], symmetric: bool) -> Tensor:
        def compute(x: np.ndarray) -> np.ndarray:
            return lapack_pinv(one_triangle(x) if symmetric else x, *limits)

        found: Tensor = computed("the pseudo-inverse", compute, a)
        ctx.settings = limits, symmetric
        ctx.save_for_backward(a, found)
        return found

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, None, None]:
        a, found = ctx.saved_tensors
        inverse = again(PseudoInverseFunction, (a, *ctx.settings), found)
        rows, columns = eye(a.shape[-2], dtype=a.dtype), eye(a.shape[-1], dtype=a.dtype)
        left, right = rows - a @ inverse, columns - inverse @ a
        by_range = inverse @ grad.mH @ inverse
        by_left, by_right = left @ grad.mH @ inverse @ inverse.mH, inverse.mH @ inverse @ grad.mH @ right
        return by_left + by_right - by_range.mH, None, None


def lapack_pinv(a: np.ndarray, atol: np.ndarray, rtol: np.ndarray) -> np.ndarray:
    """The pseudo-inverse of matrices, in which singular values below the limits are 0."""
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    kept = s > np.maximum(atol[..., None], rtol[..., None] * s.max(-1, keepdims=True, initial=0))
    inverse = np.where(kept, 1 / np.where(kept, s, 1), 0).astype(a.dtype)
    found: np.ndarray = np.swapaxes(vh, -1, -2).conj() @ (inverse[..., None] * np.swapaxes(u, -1, -2).conj())
    return found


class QrFunction(Function):
    @staticmethod
    def forward(ctx: Context, a: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = tuple(computed("the QR decomposition", lambda x: tuple(np.linalg.qr(x)), a))
        ctx.save_for_backward(a, *found)
        return found

    @staticmethod
    def backward(ctx: Context, by_q: Tensor, by_r: Tensor) -> Tensor:
        a, *results = ctx.saved_tensors
        q, r = again(QrFunction, (a,), results)
        inner = r @ by_r.mH - by_q.mH @ q
        inner = inner.tril(-1) + inner.tril(-1).mH + eye(inner.shape[-1], dtype=r.real.dtype) * inner.real
        found: Tensor = SolveFunction.apply(r, (by_q + q @ inner).mH).mH
        return found


class LogDetFunction(Function):
    @staticmethod
    def forward(ctx: Context, a: Tensor) -> tuple[Tensor, ...]:
        sign, found = np.linalg.slogdet(a.array())
        results = made(np.asarray(sign)), made(np.asarray(found))
        ctx.save_for_backward(a, results[0])
        if not a.dtype.is_complex:
            ctx.mark_non_differentiable(results[0])
        return results

    @staticmethod
    def backward(ctx: Context, by_sign: Tensor, grad: Tensor) -> Tensor:
        a, sign = ctx.saved_tensors
        if a.dtype.is_complex:  # the sign has the angle of the determinant
            grad = FUNCTIONS["complex"](grad, -(by_sign.conj() * sign).imag)
        return InverseFunction.apply(a).mH * grad.unsqueeze(-1).unsqueeze(-1)
