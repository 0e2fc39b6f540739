"""Inverses, solutions and decompositions of matrices, computed by LAPACK through NumPy, with their gradients.

All take stacks [..., rows, columns] of f32 or f64 and are computed at once, so that they cannot be part of a function
under `jit`. Gradients: M. Giles, "An extended collection of matrix derivative results", 2008; J. Townsend,
"Differentiating the singular value decomposition", 2016; S. Walter and L. Lehmann, arXiv:1009.6112.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...runtime.base.errors import UsageError
from ..autograd.function_class import Context, Function
from ..core.expression import shape_error
from ..core.grad_mode import GRAD_MODE
from ..core.registry import FUNCTIONS, function, operation
from ..core.tensor import Tensor
from ..operations.creation import eye, made

CODE = "E-TENSOR-LINALG"


class LinAlgError(UsageError):
    """A matrix that has no inverse or decomposition of this kind."""


class SlogDet(NamedTuple):
    """The sign of a determinant, and the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


class SVD(NamedTuple):
    """A = U @ diag(S) @ Vh."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class Eigen(NamedTuple):
    """Eigenvalues in ascending order, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QR(NamedTuple):
    """A = Q @ R."""

    Q: Tensor
    R: Tensor


class LeastSquares(NamedTuple):
    """What minimizes |A @ solution - B|, the sums of squares of what is left, the ranks, and the singular values."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def matrices(x: Tensor, what: str, square: bool = True) -> Tensor:
    """The tensor; UsageError unless it is a stack of matrices of f32 or f64, square ones if that is asked for."""
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        expected = "[..., n, n]" if square else "[..., rows, columns]"
        raise UsageError("E-TENSOR-SHAPE", None, f"{what} of a tensor of shape {list(x.shape)}", expected=expected)
    if x.dtype.kind != "float" or x.dtype.bits < 32:
        raise UsageError("E-TENSOR-DTYPE", None, f"{what} of {x.dtype}", expected="f32 or f64")
    return x


def _computed(what: str, compute: Callable[..., Any], *inputs: Tensor, **options: Any) -> Any:
    """What a function of NumPy returns, as tensors."""
    try:
        found = compute(*[each.array() for each in inputs], **options)
    except np.linalg.LinAlgError as error:
        raise LinAlgError(CODE, None, f"{what} failed: {error}") from None
    except ValueError as error:
        shapes = " and ".join(repr(each.expression.type) for each in inputs)
        raise shape_error(f"{what} of {shapes}: {error}") from None
    return tuple(map(made, found)) if isinstance(found, tuple) else made(found)


def _again(kind: type[Function], inputs: tuple[Any, ...], results: Any) -> Any:
    """The results, with gradients by the inputs where those are recorded."""
    return kind.apply(*inputs) if GRAD_MODE.enabled else results


def _symmetric(x: Tensor) -> Tensor:
    return (x + x.mT) / 2


class _Inverse(Function):
    @staticmethod
    def forward(ctx: Context, a: Tensor) -> Tensor:
        found: Tensor = _computed("the inverse", np.linalg.inv, a)
        ctx.save_for_backward(a, found)
        return found

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        a, found = ctx.saved_tensors
        found = _again(_Inverse, (a,), found)
        return -(found.mT @ grad @ found.mT)


class _Solve(Function):
    @staticmethod
    def forward(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
        found: Tensor = _computed("solving", np.linalg.solve, a, b)
        ctx.save_for_backward(a, b, found)
        return found

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, b, found = ctx.saved_tensors
        found = _again(_Solve, (a, b), found)
        by_b = _Solve.apply(a.mT, grad)
        return -(by_b @ found.mT), by_b


class _Cholesky(Function):
    @staticmethod
    def forward(ctx: Context, a: Tensor) -> Tensor:
        found: Tensor = _computed("the Cholesky decomposition", np.linalg.cholesky, a)
        ctx.save_for_backward(a, found)
        return found

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        a, factor = ctx.saved_tensors
        factor = _again(_Cholesky, (a,), factor)
        inner = (factor.mT @ grad).tril()
        inner = inner - inner * eye(factor.shape[-1], dtype=factor.dtype) / 2
        inverse = _Inverse.apply(factor)
        return _symmetric(inverse.mT @ inner @ inverse)


class _SVD(Function):
    @staticmethod
    def forward(ctx: Context, a: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = tuple(_computed("the singular value decomposition", _svd_of, a))
        ctx.save_for_backward(a, *found)
        return found

    @staticmethod
    def backward(ctx: Context, by_u: Tensor, by_s: Tensor, by_vh: Tensor) -> Tensor:
        a, *results = ctx.saved_tensors
        u, s, vh = _again(_SVD, (a,), results)
        v, by_v, count = vh.mT, by_vh.mT, s.shape[-1]
        one = eye(count, dtype=s.dtype)
        squares = s * s
        gaps = squares.unsqueeze(-2) - squares.unsqueeze(-1)
        factors = (1 - one) / (gaps + one)
        left, right = factors * (u.mT @ by_u), factors * (v.mT @ by_v)
        inner = (left + left.mT) * s.unsqueeze(-2) + s.unsqueeze(-1) * (right + right.mT) + one * by_s.unsqueeze(-1)
        found: Tensor = u @ inner @ vh
        if u.shape[-2] > count:
            away = by_u / s.unsqueeze(-2)
            found = found + (away - u @ (u.mT @ away)) @ vh
        if v.shape[-2] > count:
            away = by_v / s.unsqueeze(-2)
            found = found + u @ (away - v @ (v.mT @ away)).mT
        return found


def _svd_of(a: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(np.linalg.svd(a, full_matrices=False))


class _SingularValues(Function):
    """Without the singular vectors' gradients, which equal singular values do not have."""

    @staticmethod
    def forward(ctx: Context, a: Tensor) -> Tensor:
        u, s, vh = _computed("the singular value decomposition", _svd_of, a)
        ctx.save_for_backward(a, u, vh)
        found: Tensor = s
        return found

    @staticmethod
    def backward(ctx: Context, by_s: Tensor) -> Tensor:
        a, u, vh = ctx.saved_tensors
        u, _, vh = _again(_SVD, (a,), (u, None, vh))
        return (u * by_s.unsqueeze(-2)) @ vh


class _Eigh(Function):
    """Of a matrix of which one triangle is read; the gradient is symmetric, as in torch."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, triangle: str) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = tuple(_eigen_of(a, triangle))
        ctx.triangle = triangle
        ctx.save_for_backward(a, *found)
        return found

    @staticmethod
    def backward(ctx: Context, by_w: Tensor, by_v: Tensor) -> tuple[Tensor, None]:
        a, *results = ctx.saved_tensors
        w, v = _again(_Eigh, (a, ctx.triangle), results)
        one = eye(w.shape[-1], dtype=w.dtype)
        gaps = w.unsqueeze(-2) - w.unsqueeze(-1)
        inner = (1 - one) / (gaps + one) * (v.mT @ by_v) + one * by_w.unsqueeze(-1)
        return _symmetric(v @ inner @ v.mT), None


def _eigen_of(a: Tensor, triangle: str) -> Any:
    return _computed("the eigenvalues", lambda x: tuple(np.linalg.eigh(x, UPLO="L" if triangle == "L" else "U")), a)


class _Eigenvalues(Function):
    """Without the eigenvectors' gradients, which equal eigenvalues do not have."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, triangle: str) -> Tensor:
        w, v = _eigen_of(a, triangle)
        ctx.triangle = triangle
        ctx.save_for_backward(a, v)
        found: Tensor = w
        return found

    @staticmethod
    def backward(ctx: Context, by_w: Tensor) -> tuple[Tensor, None]:
        a, v = ctx.saved_tensors
        _, v = _again(_Eigh, (a, ctx.triangle), (None, v))
        return _symmetric((v * by_w.unsqueeze(-2)) @ v.mT), None


class _PseudoInverse(Function):
    """Equal singular values have gradients: G. Golub and V. Pereyra, "The differentiation of pseudo-inverses", 1973."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, rcond: float) -> Tensor:
        found: Tensor = _computed("the pseudo-inverse", lambda x: _pinv_of(x, rcond), a)
        ctx.rcond = rcond
        ctx.save_for_backward(a, found)
        return found

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, None]:
        a, found = ctx.saved_tensors
        inverse = _again(_PseudoInverse, (a, ctx.rcond), found)
        rows, columns = eye(a.shape[-2], dtype=a.dtype), eye(a.shape[-1], dtype=a.dtype)
        left, right = rows - a @ inverse, columns - inverse @ a
        by_range = inverse @ grad.mT @ inverse
        by_left, by_right = left @ grad.mT @ inverse @ inverse.mT, inverse.mT @ inverse @ grad.mT @ right
        return by_left + by_right - by_range.mT, None


def _pinv_of(a: np.ndarray, rcond: float) -> np.ndarray:
    """The pseudo-inverse of matrices, in which singular values below `rcond` times the largest one are 0."""
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    kept = s > rcond * s.max(-1, keepdims=True, initial=0)
    inverse = np.where(kept, 1 / np.where(kept, s, 1), 0).astype(a.dtype)
    found: np.ndarray = np.swapaxes(vh, -1, -2) @ (inverse[..., None] * np.swapaxes(u, -1, -2))
    return found


class _QR(Function):
    @staticmethod
    def forward(ctx: Context, a: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = tuple(_computed("the QR decomposition", lambda x: tuple(np.linalg.qr(x)), a))
        ctx.save_for_backward(a, *found)
        return found

    @staticmethod
    def backward(ctx: Context, by_q: Tensor, by_r: Tensor) -> Tensor:
        a, *results = ctx.saved_tensors
        q, r = _again(_QR, (a,), results)
        if q.shape[-2] < r.shape[-1]:
            raise UsageError("E-TENSOR-GRAD", None, "the QR decomposition of wide matrices has no gradient")
        inner = r @ by_r.mT - by_q.mT @ q
        inner = inner.tril() + inner.tril(-1).mT
        found: Tensor = _Solve.apply(r, (by_q + q @ inner).mT).mT
        return found


class _LogDet(Function):
    @staticmethod
    def forward(ctx: Context, a: Tensor) -> tuple[Tensor, ...]:
        sign, found = np.linalg.slogdet(a.array())
        results = made(np.asarray(sign)), made(np.asarray(found))
        ctx.save_for_backward(a)
        ctx.mark_non_differentiable(results[0])
        return results

    @staticmethod
    def backward(ctx: Context, by_sign: Tensor, grad: Tensor) -> Tensor:
        (a,) = ctx.saved_tensors
        return _Inverse.apply(a).mT * grad.unsqueeze(-1).unsqueeze(-1)


@operation("inverse")
def inv(A: Tensor) -> Tensor:  # noqa: N803 (torch's name)
    """The inverse of each matrix. Raises LinAlgError for singular ones."""
    found: Tensor = _Inverse.apply(matrices(A, "the inverse"))
    return found


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:  # noqa: N803 (torch's names)
    """X of which A @ X is B: vectors [..., n] or matrices [..., n, k]; X @ A with ``left=False``."""
    matrices(A, "solve")
    if not left:
        return solve(A.mT, B.mT).mT
    is_vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    right = B.unsqueeze(-1) if is_vector else B
    batch = np.broadcast_shapes(A.shape[:-2], right.shape[:-2])
    a, b = A.expand(*batch, *A.shape[-2:]), right.expand(*batch, *right.shape[-2:])
    found: Tensor = _Solve.apply(a, b)
    return found.squeeze(-1) if is_vector else found


def solve_triangular(
    A: Tensor,  # noqa: N803 (torch's name)
    B: Tensor,  # noqa: N803 (torch's name)
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Tensor:
    """As `solve`, for triangular matrices, of which only that triangle is read.

    Args:
        unitriangular: with a diagonal of 1, which is not read.
    """
    part = A.triu() if upper else A.tril()
    if unitriangular:
        one = eye(A.shape[-1], dtype=A.dtype)
        part = part * (1 - one) + one
    return solve(part, B, left=left)


@operation()
def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """The triangular L of which L @ L.T is the matrix; its transpose with `upper`.

    Raises LinAlgError for matrices that are not positive definite.
    """
    found: Tensor = _Cholesky.apply(matrices(input, "the Cholesky decomposition"))
    return found.mT if upper else found


@operation()
def cholesky_solve(input: Tensor, L: Tensor, upper: bool = False) -> Tensor:  # noqa: N803 (torch's name)
    """X of which the matrix with the factor L times X is `input`."""
    factor = L.mT if upper else L
    return solve_triangular(factor.mT, solve_triangular(factor, input, upper=False), upper=True)


@operation()
def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:  # noqa: N803 (torch's name)
    """The inverse of the matrix with the factor L."""
    return cholesky_solve(eye(L.shape[-1], dtype=L.dtype), L, upper)


def svd(A: Tensor, full_matrices: bool = True) -> SVD:  # noqa: N803 (torch's name)
    """Singular values in descending order, and both sides; without gradients if `full_matrices` adds vectors."""
    matrices(A, "svd", square=False)
    if full_matrices and A.shape[-1] != A.shape[-2]:
        if A.requires_grad:
            why = "gradients of a singular value decomposition with full matrices are not defined"
            raise UsageError("E-TENSOR-GRAD", None, why, hint="Pass full_matrices=False")
        return SVD(*_computed("the singular value decomposition", lambda x: tuple(np.linalg.svd(x)), A))
    return SVD(*_SVD.apply(A))


def svdvals(A: Tensor) -> Tensor:  # noqa: N803 (torch's name)
    """Singular values in descending order."""
    found: Tensor = _SingularValues.apply(matrices(A, "svd", square=False))
    return found


@function("svd")
def svd_of(input: Tensor, some: bool = True, compute_uv: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and V of which U @ diag(S) @ V.T is the matrix."""
    found = svd(input, not some)
    return found.U, found.S, found.Vh.mT


def eigh(A: Tensor, UPLO: str = "L") -> Eigen:  # noqa: N803 (torch's names)
    """Eigenvalues and eigenvectors of symmetric matrices, of which one triangle is read: the lower (L) or upper (U)."""
    return Eigen(*_Eigh.apply(matrices(A, "eigh"), UPLO))


def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:  # noqa: N803 (torch's names)
    """Eigenvalues of symmetric matrices in ascending order."""
    found: Tensor = _Eigenvalues.apply(matrices(A, "eigvalsh"), UPLO)
    return found


@operation()
def qr(input: Tensor, some: bool = True) -> QR:
    """Orthogonal Q, of as many columns as rows with ``some=False``, and triangular R."""
    matrices(input, "the QR decomposition", square=False)
    if not some:
        return QR(*_computed("the QR decomposition", lambda x: tuple(np.linalg.qr(x, "complete")), input))
    return QR(*_QR.apply(input))


@operation()
def slogdet(input: Tensor) -> SlogDet:
    """The sign of the determinant of each matrix, and the logarithm of its absolute value."""
    return SlogDet(*_LogDet.apply(matrices(input, "slogdet")))


@operation()
def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant of each matrix; NaN of negative ones."""
    sign, found = slogdet(input)
    result: Tensor = FUNCTIONS["where"](sign < 0, float("nan"), found)
    return result


@operation("pinverse")
def pinv(input: Tensor, rcond: float | None = None) -> Tensor:
    """The pseudo-inverse: singular values below `rcond` times the largest one count as 0, by default the float's eps
    times the longer side."""
    matrices(input, "the pseudo-inverse", square=False)
    limit = max(input.shape[-2:]) * float(np.finfo(input.dtype.as_numpy()).eps) if rcond is None else rcond
    found: Tensor = _PseudoInverse.apply(input, limit)
    return found


def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> LeastSquares:  # noqa: N803
    """The least squares solutions of A @ X = B; `driver` is PyTorch's choice of an algorithm, without effect."""
    solution = pinv(A, rcond) @ B
    s = svdvals(A)
    rest = (A @ solution - B).square().sum(-2) if A.shape[-2] > A.shape[-1] else A.new_zeros(0)
    return LeastSquares(solution, rest, matrix_rank(A), s)


def matrix_rank(A: Tensor, tol: float | None = None) -> Tensor:  # noqa: N803 (torch's name)
    """How many singular values are above `tol`: by default eps times the longer side and the largest one."""
    s = svdvals(A.detach())
    limit = max(A.shape[-2:]) * float(np.finfo(A.dtype.as_numpy()).eps) * s.amax(-1, keepdim=True)
    return (s > (limit if tol is None else tol)).sum(-1)
