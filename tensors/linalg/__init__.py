"""`cc.linalg`: products, norms, solutions and decompositions of matrices by PyTorch's names."""

from __future__ import annotations

from ..core.tensor import Tensor
from ..operations.composed import tensordot as tensordot
from ..operations.linalg import det as det
from ..operations.linalg import matmul as matmul
from .decompositions import QR as QR
from .decompositions import cholesky as cholesky
from .decompositions import eig as eig
from .decompositions import eigh as eigh
from .decompositions import eigvals as eigvals
from .decompositions import eigvalsh as eigvalsh
from .decompositions import inv as inv
from .decompositions import lstsq as lstsq
from .decompositions import matrix_rank as matrix_rank
from .decompositions import pinv as pinv
from .decompositions import qr as _qr
from .decompositions import slogdet as slogdet
from .decompositions import solve as solve
from .decompositions import solve_triangular as solve_triangular
from .decompositions import svd as svd
from .decompositions import svdvals as svdvals
from .matrix_functions import LinAlgError as LinAlgError
from .products import cond as cond
from .products import cross as cross
from .products import matrix_exp as matrix_exp
from .products import matrix_norm as matrix_norm
from .products import matrix_power as matrix_power
from .products import multi_dot as multi_dot
from .products import norm as norm
from .products import vander as vander
from .products import vector_norm as vector_norm
from .triangular_factors import cholesky_ex as cholesky_ex
from .triangular_factors import diagonal as diagonal
from .triangular_factors import householder_product as householder_product
from .triangular_factors import inv_ex as inv_ex
from .triangular_factors import lu as lu
from .triangular_factors import lu_factor as lu_factor
from .triangular_factors import lu_factor_ex as lu_factor_ex
from .triangular_factors import lu_solve as lu_solve
from .triangular_factors import solve_ex as solve_ex
from .triangular_factors import tensorinv as tensorinv
from .triangular_factors import tensorsolve as tensorsolve
from .triangular_factors import vecdot as vecdot

__all__ = [
    "LinAlgError", "QR", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals",
    "eigvalsh",
    "householder_product", "inv", "inv_ex", "lstsq", "lu", "lu_factor", "lu_factor_ex", "lu_solve", "matmul",
    "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet",
    "solve", "solve_ex", "solve_triangular", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve", "vander",
    "vecdot", "vector_norm",
]  # fmt: skip


def qr(A: Tensor, mode: str = "reduced") -> QR:  # noqa: N803 (torch's name)
    """Orthogonal Q and triangular R: "reduced", or "complete" with a square Q."""
    return _qr(A, mode != "complete")


def __dir__() -> list[str]:
    return list(__all__)
