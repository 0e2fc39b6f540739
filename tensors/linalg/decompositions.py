"""Inverses, solutions and decompositions of matrices, computed by LAPACK through NumPy, with their gradients.

All take stacks [..., rows, columns] of f32, f64, c64 or c128 and are computed at once, so that they cannot be part of a
function under `jit`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...runtime.base.errors import UsageError
from ..core.promotion import category
from ..core.registry import FUNCTIONS, function, method, operation
from ..core.tensor import Tensor
from ..operations.creation import eye, made
from ..operations.numeric.variances import squared_size
from .matrix_functions import (
    CholeskyFunction,
    EigenvaluesFunction,
    EigFunction,
    EighFunction,
    InverseFunction,
    LogDetFunction,
    PseudoInverseFunction,
    QrFunction,
    SingularValuesFunction,
    SolveFunction,
    SvdFunction,
    computed,
    one_triangle,
)


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


@operation("inverse")
def inv(A: Tensor) -> Tensor:  # noqa: N803 (torch's name)
    """The inverse of each matrix. Raises LinAlgError for singular ones."""
    found: Tensor = InverseFunction.apply(matrices(A, "the inverse"))
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
    found: Tensor = SolveFunction.apply(a, b)
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
    found: Tensor = CholeskyFunction.apply(matrices(input, "the Cholesky decomposition"))
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
    u, s, vh = SvdFunction.apply(matrices(A, "svd", square=False))
    if full_matrices and A.shape[-1] != A.shape[-2]:
        count, cat = s.shape[-1], FUNCTIONS["cat"]
        full = computed("the singular value decomposition", lambda x: tuple(np.linalg.svd(x)), A)
        u, vh = cat([u, full[0][..., count:]], -1), cat([vh, full[2][..., count:, :]], -2)
    return SVD(u, s, vh)


def svdvals(A: Tensor) -> Tensor:  # noqa: N803 (torch's name)
    """Singular values in descending order."""
    found: Tensor = SingularValuesFunction.apply(matrices(A, "svd", square=False))
    return found


@function("svd")
def svd_of(input: Tensor, some: bool = True, compute_uv: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and V of which U @ diag(S) @ V.T is the matrix."""
    found = svd(input, not some)
    return found.U, found.S, found.Vh.mH


def eig(A: Tensor) -> Eigen:  # noqa: N803 (torch's name)
    """Complex eigenvalues, in no order, and eigenvectors of length 1 as columns, whose phase is any."""
    return Eigen(*EigFunction.apply(matrices(A, "eig")))


def eigvals(A: Tensor) -> Tensor:  # noqa: N803 (torch's name)
    """Complex eigenvalues, in no order."""
    return eig(A).eigenvalues


def eigh(A: Tensor, UPLO: str = "L") -> Eigen:  # noqa: N803 (torch's names)
    """Ascending eigenvalues and eigenvectors of symmetric or Hermitian matrices, of which the lower (L) or upper (U)
    triangle is read."""
    return Eigen(*EighFunction.apply(matrices(A, "eigh"), UPLO))


def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:  # noqa: N803 (torch's names)
    """Eigenvalues of symmetric matrices in ascending order."""
    found: Tensor = EigenvaluesFunction.apply(matrices(A, "eigvalsh"), UPLO)
    return found


@operation()
def qr(input: Tensor, some: bool = True) -> QR:
    """Orthogonal Q, of as many columns as rows with ``some=False``, and triangular R."""
    matrices(input, "the QR decomposition", square=False)
    if not some:
        return QR(*computed("the QR decomposition", lambda x: tuple(np.linalg.qr(x, "complete")), input))
    rows, columns = input.shape[-2:]
    if columns > rows:  # the square part decides Q
        q, r = QrFunction.apply(input.narrow(-1, 0, rows))
        return QR(q, FUNCTIONS["cat"]([r, q.mH @ input.narrow(-1, rows, columns - rows)], -1))
    return QR(*QrFunction.apply(input))


@operation()
def slogdet(input: Tensor) -> SlogDet:
    """The sign of the determinant of each matrix, and the logarithm of its absolute value."""
    return SlogDet(*LogDetFunction.apply(matrices(input, "slogdet")))


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
    found: Tensor = PseudoInverseFunction.apply(A, _limits(A, atol, rcond if rtol is None else rtol), hermitian)
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
    """Number of singular values above a limit, as in `pinv`; `tol` is an older name of `atol`."""
    matrices(A, "the rank", square=hermitian)
    if tol is not None and atol is None:
        atol, rtol = tol, 0.0 if rtol is None else rtol
    least, share = _limits(A, atol, rtol)
    s = np.linalg.svd(one_triangle(A.detach().array()) if hermitian else A.detach().array(), compute_uv=False)
    kept = s > np.maximum(least[..., None], share[..., None] * s.max(-1, keepdims=True, initial=0))
    return made(np.asarray(kept.sum(-1)))
