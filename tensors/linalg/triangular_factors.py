"""LU factors with partial pivoting, products of reflections, and factors with LAPACK's codes in place of errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...runtime.base.errors import UsageError
from ..autograd.function_class import Context, Function
from ..core.expression import shape_error
from ..core.registry import FUNCTIONS, function, method, operation
from ..core.tensor import Tensor
from ..operations.creation import eye, made
from ..operations.operands import dim_of
from .decompositions import cholesky, inv, matrices, solve, solve_triangular
from .matrix_functions import CODE, LinAlgError

# ruff: noqa: N803 (torch's names)


class LU(NamedTuple):
    """A = P @ L @ U."""

    P: Tensor
    L: Tensor
    U: Tensor


class FactorLU(NamedTuple):
    """Both factors in one matrix, and the row that each row was exchanged with, from 1 on."""

    LU: Tensor
    pivots: Tensor


class FactorWithInfo(NamedTuple):
    """As `FactorLU`, and the first pivot that is 0, or 0."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


class WithInfo(NamedTuple):
    """A result, and LAPACK's code of each matrix: 0, or the first row where it failed."""

    result: Tensor
    info: Tensor


class Inverse(NamedTuple):
    """Inverses, and LAPACK's code of each matrix."""

    inverse: Tensor
    info: Tensor


class Factor(NamedTuple):
    """Cholesky factors, and LAPACK's code of each matrix."""

    L: Tensor
    info: Tensor


class TriangularSolution(NamedTuple):
    """The solution, and a copy of the matrix."""

    solution: Tensor
    cloned_coefficient: Tensor


class Reflections(NamedTuple):
    """R above the diagonal, reflections below it, and their scales."""

    a: Tensor
    tau: Tensor


def _eliminated(a: np.ndarray, pivot: bool) -> tuple[np.ndarray, np.ndarray, int]:
    """LU of one matrix in f64, the rows exchanged, and the first pivot that is 0."""
    found = a.astype(np.result_type(a.dtype, np.float64))
    rows, columns = found.shape
    pivots, info = np.arange(1, min(rows, columns) + 1, dtype=np.int32), 0
    for step in range(len(pivots)):
        if pivot:
            other = step + int((np.abs(found[step:, step].real) + np.abs(found[step:, step].imag)).argmax())
            pivots[step] = other + 1
            found[[step, other]] = found[[other, step]]
        if found[step, step] == 0:
            info = info or step + 1
            continue
        found[step + 1 :, step] /= found[step, step]
        found[step + 1 :, step + 1 :] -= np.outer(found[step + 1 :, step], found[step, step + 1 :])
    return found, pivots, info


def _of_each(a: np.ndarray, pivot: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    batch, size = a.shape[:-2], min(a.shape[-2:])
    found, pivots = np.empty_like(a), np.empty((*batch, size), np.int32)
    info = np.zeros(batch, np.int32)
    for index in np.ndindex(batch):
        found[index], pivots[index], info[index] = _eliminated(a[index], pivot)
    return found, pivots, info


class _SquareLU(Function):
    """L and U of square matrices whose rows need no exchange."""

    @staticmethod
    def forward(ctx: Context, a: Tensor) -> tuple[Tensor, ...]:
        both = _of_each(a.array(), False)[0]
        lower = np.tril(both, -1) + np.eye(both.shape[-1], dtype=both.dtype)
        found = made(lower), made(np.triu(both))
        ctx.save_for_backward(a, *found)
        return found

    @staticmethod
    def backward(ctx: Context, by_l: Tensor, by_u: Tensor) -> Tensor:
        a, *results = ctx.saved_tensors
        lower, upper = _SquareLU.apply(a) if by_l.requires_grad or by_u.requires_grad else results
        inner = (lower.mH @ by_l).tril(-1) + (by_u @ upper.mH).triu()
        return solve(upper, solve(lower.mH, inner).mH).mH


def _order(pivots: np.ndarray, rows: int) -> np.ndarray:
    """The rows in the order in which exchanges leave them."""
    found = np.broadcast_to(np.arange(rows), (*pivots.shape[:-1], rows)).copy()
    for index in np.ndindex(pivots.shape[:-1]):
        for step, other in enumerate(pivots[index]):
            found[(*index, [step, other - 1])] = found[(*index, [other - 1, step])]
    return found


def _rows(x: Tensor, order: np.ndarray) -> Tensor:
    """Rows of matrices in an order."""
    batch = np.broadcast_shapes(x.shape[:-2], order.shape[:-1])
    places = np.broadcast_to(order[..., None], (*batch, order.shape[-1], x.shape[-1]))
    return x.broadcast_to((*batch, *x.shape[-2:])).gather(-2, made(np.ascontiguousarray(places)))


def _factors(A: Tensor, pivot: bool) -> tuple[np.ndarray, np.ndarray, Tensor, Tensor]:
    """Exchanges, LAPACK's code, L and U, with gradients: the leading square is factored, the rest is solved for."""
    both, pivots, info = _of_each(A.detach().array(), pivot)
    rows, columns = A.shape[-2:]
    size = min(rows, columns)
    if rows > size and info.any():  # L of a singular U is not the solution of an equation, and has no gradient
        lower = np.tril(both, -1) + np.eye(rows, size, dtype=both.dtype)
        return pivots, info, made(lower), made(np.triu(both[..., :size, :]))
    x = _rows(A, _order(pivots, rows)) if pivot else A
    lower, upper = _SquareLU.apply(x.narrow(-2, 0, size).narrow(-1, 0, size))
    if rows > size:
        rest = solve_triangular(upper, x.narrow(-2, size, rows - size), upper=True, left=False)
        lower = FUNCTIONS["cat"]([lower, rest], -2)
    if columns > size:
        rest = solve_triangular(lower, x.narrow(-1, size, columns - size), upper=False, unitriangular=True)
        upper = FUNCTIONS["cat"]([upper, rest], -1)
    return pivots, info, lower, upper


def _joined(lower: Tensor, upper: Tensor) -> Tensor:
    """Both factors in one matrix, without the diagonal of the lower one."""
    rows, columns = lower.shape[-2], upper.shape[-1]
    size = lower.shape[-1]
    below = lower.tril(-1)
    if columns > size:
        below = FUNCTIONS["cat"]([below, below.new_zeros(*below.shape[:-1], columns - size)], -1)
    above = upper
    if rows > size:
        above = FUNCTIONS["cat"]([above, above.new_zeros(*above.shape[:-2], rows - size, columns)], -2)
    return below + above


def _permutation(pivots: np.ndarray, rows: int, like: Tensor) -> Tensor:
    """P of A = P @ L @ U."""
    order = _order(pivots, rows)
    found = np.zeros((*order.shape, rows), like.dtype.as_numpy())
    np.put_along_axis(found, order[..., None, :], 1, -2)
    return made(found)


def lu(A: Tensor, *, pivot: bool = True) -> LU:
    """A = P @ L @ U: a permutation, a lower triangle with a diagonal of 1 and an upper one; P is empty without
    `pivot`."""
    matrices(A, "the LU decomposition", square=False)
    pivots, _, lower, upper = _factors(A, pivot)
    return LU(_permutation(pivots, A.shape[-2], A) if pivot else A.new_zeros(0), lower, upper)


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> FactorWithInfo:
    """As `lu_factor`, with the first pivot that is 0, or 0; no error is raised without `check_errors`."""
    matrices(A, "the LU decomposition", square=False)
    pivots, info, lower, upper = _factors(A, pivot)
    if check_errors and info.any():
        raise LinAlgError(CODE, None, "the LU decomposition failed: a pivot is 0")
    return FactorWithInfo(_joined(lower, upper), made(pivots), made(np.asarray(info)))


def lu_factor(A: Tensor, *, pivot: bool = True) -> FactorLU:
    """Both LU factors in one matrix, and the row that each row was exchanged with, from 1 on."""
    return FactorLU(*lu_factor_ex(A, pivot=pivot, check_errors=True)[:2])


@function("lu")
@method("lu")
def lu_of(A: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:
    """As `linalg.lu_factor`; LAPACK's code of each matrix is returned with `get_infos`."""
    found = lu_factor_ex(A, pivot=pivot)
    return tuple(found) if get_infos else found[:2]


@function()
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> LU:
    """P, L and U of what `lu_factor` returned."""
    rows, columns = LU_data.shape[-2:]
    size = min(rows, columns)
    none = LU_data.new_zeros(0)
    order = _permutation(LU_pivots.array(), rows, LU_data) if unpack_pivots else none
    if not unpack_data:
        return LU(order, none, none)
    lower = LU_data.narrow(-1, 0, size).tril(-1) + eye(rows, size, dtype=LU_data.dtype)
    return LU(order, lower, LU_data.narrow(-2, 0, size).triu())


def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """X of which A @ X is B, by the LU factors of A; X @ A without `left`, A.mH with `adjoint`."""
    if not left:
        return lu_solve(LU, pivots, B.mH, adjoint=not adjoint).mH
    order = _order(pivots.array(), LU.shape[-1])
    if adjoint:
        inner = solve_triangular(LU.mH, B, upper=False)
        return _rows(solve_triangular(LU.mH, inner, upper=True, unitriangular=True), np.argsort(order, -1))
    inner = solve_triangular(LU, _rows(B, order), upper=False, unitriangular=True)
    return solve_triangular(LU, inner, upper=True)


@function("lu_solve")
@method("lu_solve")
def lu_solve_of(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """X of which A @ X is b, by the LU factors of A."""
    return lu_solve(LU_data, LU_pivots, b)


def _singular(A: Tensor, what: str, check_errors: bool) -> tuple[Tensor, Tensor]:
    """Matrices, the identity in place of singular ones, and the first pivot of each that is 0."""
    matrices(A, what)
    info = _of_each(A.detach().array(), True)[2]
    if not info.any():
        return A, made(info)
    if check_errors:
        raise LinAlgError(CODE, None, f"{what} failed: a matrix is singular")
    failed = made(np.asarray(info != 0)[..., None, None])
    return FUNCTIONS["where"](failed, eye(A.shape[-1], dtype=A.dtype), A), made(info)


def inv_ex(A: Tensor, *, check_errors: bool = False) -> Inverse:
    """The inverse of each matrix, and the first pivot that is 0, or 0; no error is raised without `check_errors`."""
    x, info = _singular(A, "the inverse", check_errors)
    return Inverse(inv(x), info)


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> WithInfo:
    """As `solve`, with the first pivot that is 0, or 0; no error is raised without `check_errors`."""
    x, info = _singular(A, "solve", check_errors)
    return WithInfo(solve(x, B, left=left), info)


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> Factor:
    """As `cholesky`, with the order of the first minor that is not positive, or 0."""
    matrices(A, "the Cholesky decomposition")
    given = A.detach().array()
    info = np.zeros(given.shape[:-2], np.int32)
    for index in np.ndindex(info.shape):
        if _is_positive(given[index]):
            continue
        orders = range(1, given.shape[-1] + 1)
        info[index] = next((order for order in orders if not _is_positive(given[index][:order, :order])), 0)
    if not info.any():
        return Factor(cholesky(A, upper), made(info))
    if check_errors:
        raise LinAlgError(CODE, None, "the Cholesky decomposition failed: a matrix is not positive definite")
    failed = made((info != 0)[..., None, None])
    return Factor(cholesky(FUNCTIONS["where"](failed, eye(A.shape[-1], dtype=A.dtype), A), upper), made(info))


def _is_positive(a: np.ndarray) -> bool:
    try:
        np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        return False
    return True


@operation()
def triangular_solve(
    b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> TriangularSolution:
    """X of which A @ X is b for triangular matrices, and a copy of A."""
    x, is_upper = (A.mT, not upper) if transpose else (A, upper)
    return TriangularSolution(solve_triangular(x, b, upper=is_upper, unitriangular=unitriangular), A.clone())


@operation()
def geqrf(input: Tensor) -> Reflections:
    """The QR decomposition as LAPACK has it: R, and the reflections whose product is Q; without gradients."""
    matrices(input, "the QR decomposition", square=False)
    found, scales = np.linalg.qr(input.detach().array(), "raw")
    return Reflections(made(np.swapaxes(found, -1, -2).copy()), made(scales))


def _reflected(A: Tensor, tau: Tensor, x: Tensor, order: Sequence[int]) -> Tensor:
    """Reflections below the diagonal of A applied to matrices in an order."""
    ahead = A.tril(-1) + eye(A.shape[-2], A.shape[-1], dtype=A.dtype)
    for step in order:
        vector = ahead.narrow(-1, step, 1)
        x = x - tau.narrow(-1, step, 1).unsqueeze(-1) * (vector @ (vector.mH @ x))
    return x


@function("orgqr")
def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first columns of the product of the reflections below the diagonal of A."""
    matrices(A, "householder_product", square=False)
    start = eye(A.shape[-2], A.shape[-1], dtype=A.dtype).expand(A.shape)
    return _reflected(A, tau, start, range(tau.shape[-1] - 1, -1, -1))


@operation()
def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """The product of the square Q, whose reflections are below the diagonal of `input`, and a matrix; on the right
    without `left`."""
    if not left:
        return ormqr(input, tau, other.mH, True, not transpose).mH
    count, tau = tau.shape[-1], tau.conj() if transpose else tau
    return _reflected(input, tau, other, range(count) if transpose else range(count - 1, -1, -1))


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Sums of products along a dim, of conjugates of `x` where elements are complex."""
    return (x.conj() * y).sum(dim)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The elements of a diagonal of matrices, as the last dim."""
    found: Tensor = A.diagonal(offset, dim1, dim2)
    return found


def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of a tensor as a matrix from its last dims to its first `ind` ones."""
    if ind < 1:
        raise UsageError("E-TENSOR-VALUE", None, f"tensorinv with ind={ind}", expected="at least 1")
    ahead, after = A.shape[:ind], A.shape[ind:]
    if math.prod(ahead) != math.prod(after):
        raise shape_error(f"tensorinv of {list(ahead)} by {list(after)}")
    return inv(A.reshape(math.prod(ahead), -1)).reshape(*after, *ahead)


def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """X of which tensordot(A, X, X.ndim) is B; `dims` of A are moved to its end first."""
    last = [dim_of(dim, A.ndim) for dim in dims or ()]
    x = A.permute([dim for dim in range(A.ndim) if dim not in last] + last)
    shape = x.shape[B.ndim :]
    return solve(x.reshape(-1, math.prod(shape)), B.reshape(-1)).reshape(shape)


def _low_rank(decomposed: Callable[..., Any], A: Tensor, q: int, niter: int, M: Tensor | None) -> Any:
    """The decomposition of a matrix within a basis of q random directions (Halko, Martinsson and Tropp 2009)."""
    x = A if M is None else A - M.broadcast_to(A.shape)
    if x.shape[-2] < x.shape[-1]:
        u, s, v = _low_rank(decomposed, x.mT, q, niter, None)
        return v, s, u
    start = FUNCTIONS["randn"](x.shape[-1], q, dtype=x.dtype)
    basis = FUNCTIONS["qr"](x @ start).Q
    for _ in range(niter):
        basis = FUNCTIONS["qr"](x @ FUNCTIONS["qr"](x.mT @ basis).Q).Q
    u, s, v = decomposed(basis.mT @ x)
    return basis @ u, s, v


@function()
def svd_lowrank(A: Tensor, q: int | None = 6, niter: int = 2, M: Tensor | None = None) -> tuple[Tensor, ...]:
    """U, S and V of about `q` of the largest singular values of A - M, by random directions."""
    found: tuple[Tensor, ...] = _low_rank(FUNCTIONS["svd"], A, min(q or 6, *A.shape[-2:]), niter, M)
    return found


@function()
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, ...]:
    """U, S and V of about `q` principal components of rows, by random directions."""
    x = A - A.mean(-2, keepdim=True) if center else A
    return svd_lowrank(x, min(6, *A.shape[-2:]) if q is None else q, niter)
