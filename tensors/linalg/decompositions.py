"""Inverses, solutions and decompositions of matrices, computed by LAPACK through NumPy, with their gradients.

All take stacks [..., rows, columns] of f32, f64, c64 or c128 and are computed at once, so that they cannot be part of a
function under `jit`. Gradients: M. Giles, "An extended collection of matrix derivative results", 2008; J. Townsend,
"Differentiating the singular value decomposition", 2016; S. Walter and L. Lehmann, arXiv:1009.6112; C. Boeddeker and
others, "On the computation of complex-valued gradients", arXiv:1701.00392.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...runtime.base.errors import UsageError
from ..autograd.function_class import Context, Function
from ..core.expression import shape_error
from ..core.grad_mode import GRAD_MODE
from ..core.promotion import as_complex, category
from ..core.registry import FUNCTIONS, function, method, operation
from ..core.tensor import Tensor
from ..operations.creation import eye, made
from ..operations.numeric.variances import squared_size

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
    """Eigenvalues, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QR(NamedTuple):
    """A = Q @ R."""

    Q: Tensor
    R: Tensor


class LeastSquares(NamedTuple):
    """Least squares: the solution that minimizes |A @ solution - B|, the sums of squared residuals, the ranks, and the
    singular values."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def matrices(x: Tensor, what: str, square: bool = True) -> Tensor:
    """The tensor; UsageError unless it is a stack of matrices of f32 or f64, square ones if that is asked for."""
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        expected = "[..., n, n]" if square else "[..., rows, columns]"
        raise UsageError("E-TENSOR-SHAPE", None, f"{what} of a tensor of shape {list(x.shape)}", expected=expected)
    if category(x.dtype) < 2 or x.dtype.bits < 32:
        raise UsageError("E-TENSOR-DTYPE", None, f"{what} of {x.dtype}", expected="f32, f64, c64 or c128")
    return x


def _computed(what: str, compute: Callable[..., Any], *inputs: Tensor, **options: Any) -> Any:
    """The results of a NumPy function as tensors."""
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
    return (x + x.mH) / 2


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
        return -(found.mH @ grad @ found.mH)


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
        by_b = _Solve.apply(a.mH, grad)
        return -(by_b @ found.mH), by_b


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
        inner = (factor.mH @ grad).tril()
        inverse = _Inverse.apply(factor)
        return inverse.mH @ (inner + inner.tril(-1).mH) @ inverse / 2


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


def _svd_of(a: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(np.linalg.svd(a, full_matrices=False))


class _SingularValues(Function):
    """Singular values, differentiable even if some are equal, where singular vectors are not."""

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
        inner = (1 - one) / (gaps + one) * (v.mH @ by_v) + one * by_w.unsqueeze(-1)
        return _symmetric(v @ inner @ v.mH), None


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
        return _symmetric((v * by_w.unsqueeze(-2)) @ v.mH), None


class _Eig(Function):
    """Of any square matrix; eigenvalues and eigenvectors are complex."""

    @staticmethod
    def forward(ctx: Context, a: Tensor) -> tuple[Tensor, ...]:
        kind = as_complex(a.dtype).as_numpy()
        found: tuple[Tensor, ...] = tuple(
            _computed("the eigenvalues", lambda x: tuple(each.astype(kind) for each in np.linalg.eig(x)), a)
        )
        ctx.save_for_backward(a, *found)
        return found

    @staticmethod
    def backward(ctx: Context, by_w: Tensor, by_v: Tensor) -> Tensor:
        a, *results = ctx.saved_tensors
        w, v = _again(_Eig, (a,), results)
        one = eye(w.shape[-1], dtype=w.dtype)
        gaps = (w.unsqueeze(-2) - w.unsqueeze(-1)).conj()
        inner = v.mH @ by_v
        lengths = inner.diagonal(0, -2, -1).real.unsqueeze(-2)  # vectors stay of length 1
        inner = (1 - one) / (gaps + one) * (inner - v.mH @ (v * lengths)) + one * by_w.unsqueeze(-1)
        found = _Solve.apply(v.mH, inner @ v.mH)
        return found if a.dtype.is_complex else found.real


class _PseudoInverse(Function):
    """Equal singular values have gradients: G. Golub and V. Pereyra, "The differentiation of pseudo-inverses", 1973."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, limits: tuple[np.ndarray, np.ndarray], symmetric: bool) -> Tensor:
        def compute(x: np.ndarray) -> np.ndarray:
            return _pinv_of(_one_triangle(x) if symmetric else x, *limits)

        found: Tensor = _computed("the pseudo-inverse", compute, a)
        ctx.settings = limits, symmetric
        ctx.save_for_backward(a, found)
        return found

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, None, None]:
        a, found = ctx.saved_tensors
        inverse = _again(_PseudoInverse, (a, *ctx.settings), found)
        rows, columns = eye(a.shape[-2], dtype=a.dtype), eye(a.shape[-1], dtype=a.dtype)
        left, right = rows - a @ inverse, columns - inverse @ a
        by_range = inverse @ grad.mH @ inverse
        by_left, by_right = left @ grad.mH @ inverse @ inverse.mH, inverse.mH @ inverse @ grad.mH @ right
        return by_left + by_right - by_range.mH, None, None


def _pinv_of(a: np.ndarray, atol: np.ndarray, rtol: np.ndarray) -> np.ndarray:
    """The pseudo-inverse of matrices, in which singular values below the limits are 0."""
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    kept = s > np.maximum(atol[..., None], rtol[..., None] * s.max(-1, keepdims=True, initial=0))
    inverse = np.where(kept, 1 / np.where(kept, s, 1), 0).astype(a.dtype)
    found: np.ndarray = np.swapaxes(vh, -1, -2).conj() @ (inverse[..., None] * np.swapaxes(u, -1, -2).conj())
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
        inner = r @ by_r.mH - by_q.mH @ q
        inner = inner.tril(-1) + inner.tril(-1).mH + eye(inner.shape[-1], dtype=r.real.dtype) * inner.real
        found: Tensor = _Solve.apply(r, (by_q + q @ inner).mH).mH
        return found


class _LogDet(Function):
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
        return _Inverse.apply(a).mH * grad.unsqueeze(-1).unsqueeze(-1)


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
    return found.mH if upper else found


@operation()
def cholesky_solve(input: Tensor, L: Tensor, upper: bool = False) -> Tensor:  # noqa: N803 (torch's name)
    """X of which the matrix with the factor L times X is `input`."""
    factor = L.mH if upper else L
    found = solve_triangular(factor.mH, solve_triangular(factor, input, upper=False), upper=True)
    if not L.requires_grad:
        return found
    factor = factor + (factor.tril() - factor).detach()  # as in torch, the other triangle has gradients as well
    by_matrix = solve(factor @ factor.mH, input)
    return found.detach() + (by_matrix - by_matrix.detach())


@operation()
def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:  # noqa: N803 (torch's name)
    """The inverse of the matrix with the factor L."""
    return cholesky_solve(eye(L.shape[-1], dtype=L.dtype), L, upper)


def svd(A: Tensor, full_matrices: bool = True) -> SVD:  # noqa: N803 (torch's name)
    """Singular values in descending order, and both sides; vectors that `full_matrices` adds have no gradients."""
    u, s, vh = _SVD.apply(matrices(A, "svd", square=False))
    if full_matrices and A.shape[-1] != A.shape[-2]:
        count, cat = s.shape[-1], FUNCTIONS["cat"]
        full = _computed("the singular value decomposition", lambda x: tuple(np.linalg.svd(x)), A)
        u, vh = cat([u, full[0][..., count:]], -1), cat([vh, full[2][..., count:, :]], -2)
    return SVD(u, s, vh)


def svdvals(A: Tensor) -> Tensor:  # noqa: N803 (torch's name)
    """Singular values in descending order."""
    found: Tensor = _SingularValues.apply(matrices(A, "svd", square=False))
    return found


@function("svd")
def svd_of(input: Tensor, some: bool = True, compute_uv: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and V of which U @ diag(S) @ V.T is the matrix."""
    found = svd(input, not some)
    return found.U, found.S, found.Vh.mH


def eig(A: Tensor) -> Eigen:  # noqa: N803 (torch's name)
    """Complex eigenvalues, in no order, and eigenvectors of length 1 as columns, whose phase is any."""
    return Eigen(*_Eig.apply(matrices(A, "eig")))


def eigvals(A: Tensor) -> Tensor:  # noqa: N803 (torch's name)
    """Complex eigenvalues, in no order."""
    return eig(A).eigenvalues


def eigh(A: Tensor, UPLO: str = "L") -> Eigen:  # noqa: N803 (torch's names)
    """Ascending eigenvalues and eigenvectors of symmetric or Hermitian matrices, of which the lower (L) or upper (U)
    triangle is read."""
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
    rows, columns = input.shape[-2:]
    if columns > rows:  # the square part decides Q
        q, r = _QR.apply(input.narrow(-1, 0, rows))
        return QR(q, FUNCTIONS["cat"]([r, q.mH @ input.narrow(-1, rows, columns - rows)], -1))
    return QR(*_QR.apply(input))


@operation()
def slogdet(input: Tensor) -> SlogDet:
    """The sign of the determinant of each matrix, and the logarithm of its absolute value."""
    return SlogDet(*_LogDet.apply(matrices(input, "slogdet")))


@operation()
def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant of each matrix; NaN of negative ones."""
    sign, found = slogdet(input)
    if sign.dtype.is_complex:
        return found + sign.log()
    result: Tensor = FUNCTIONS["where"](sign < 0, float("nan"), found)
    return result


def _limits(A: Tensor, atol: Any, rtol: Any) -> tuple[np.ndarray, np.ndarray]:  # noqa: N803 (torch's name)
    """Below which singular values count as 0: `atol`, and `rtol` times the largest one, by default the float's eps
    times the longer side."""
    if rtol is None:
        exact = atol is not None and bool(np.any(np.asarray(atol) > 0))
        rtol = 0.0 if exact else max(A.shape[-2:]) * float(np.finfo(A.dtype.as_numpy()).eps)
    return np.asarray(0.0 if atol is None else atol), np.asarray(rtol)


def _one_triangle(a: np.ndarray) -> np.ndarray:
    """Symmetric or Hermitian matrices by their lower triangles."""
    below = np.tril(a, -1)
    return below + np.swapaxes(below, -1, -2).conj() + np.eye(a.shape[-1], dtype=a.real.dtype) * a.real


def pinv(
    A: Tensor,  # noqa: N803 (torch's name)
    rcond: Any = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Any = None,
) -> Tensor:
    """The pseudo-inverse, in which singular values below a limit count as 0.

    Args:
        rcond: an older name of `rtol`.
        hermitian: of symmetric matrices, of which the lower triangle is read.
        atol, rtol: the limit, and the limit relative to the largest singular value, by default the float's eps times
            the longer side.
    """
    matrices(A, "the pseudo-inverse", square=hermitian)
    found: Tensor = _PseudoInverse.apply(A, _limits(A, atol, rcond if rtol is None else rtol), hermitian)
    return found


@function("pinverse")
@method("pinverse")
def pinv_of(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The pseudo-inverse, in which singular values below `rcond` times the largest one count as 0."""
    return pinv(input, rcond)


def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> LeastSquares:  # noqa: N803
    """The least squares solutions of A @ X = B.

    Args:
        rcond: singular values below it times the largest one count as 0.
        driver: LAPACK's algorithm as PyTorch names it, which decides about the results besides the solution: "gelsy"
            (the default) has no residuals, "gels" no rank, and singular values are those of "gelsd" and "gelss".

    Raises UsageError for other drivers.
    """
    driver = driver or "gelsy"
    if driver not in ("gels", "gelsy", "gelsd", "gelss"):
        raise UsageError("E-TENSOR-VALUE", None, f"lstsq by {driver!r}", expected="gels, gelsy, gelsd or gelss")
    solution = pinv(A, rcond) @ B
    rank = matrix_rank(A, rtol=rcond)
    rest = s = A.detach().real.new_zeros(0)
    if driver != "gelsy" and A.shape[-2] > A.shape[-1] and (driver == "gels" or bool((rank == A.shape[-1]).all())):
        rest = squared_size(A @ solution - B).sum(-2)
    if driver in ("gelsd", "gelss"):
        s = svdvals(A.detach())
    return LeastSquares(solution, rest, rank.new_zeros(0) if driver == "gels" else rank, s)


def matrix_rank(
    A: Tensor,  # noqa: N803 (torch's name)
    tol: Any = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Any = None,
) -> Tensor:
    """How many singular values are above a limit, as in `pinv`; `tol` is an older name of `atol`."""
    matrices(A, "the rank", square=hermitian)
    if tol is not None and atol is None:
        atol, rtol = tol, 0.0 if rtol is None else rtol
    least, share = _limits(A, atol, rtol)
    s = np.linalg.svd(_one_triangle(A.detach().array()) if hermitian else A.detach().array(), compute_uv=False)
    kept = s > np.maximum(least[..., None], share[..., None] * s.max(-1, keepdims=True, initial=0))
    return made(np.asarray(kept.sum(-1)))
