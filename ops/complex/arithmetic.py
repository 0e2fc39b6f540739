"""Arithmetic, products of matrices and reductions of complex numbers."""

from __future__ import annotations

import numpy as np

from ..elementwise import arithmetic, comparison, unary, variadic
from ..linalg import det, einsum, gemm, linear, matmul
from ..reduce import cumulative, reduce
from .declare import holomorphic, on_complex, real_result


def _det(x: np.ndarray) -> np.ndarray:
    """Determinant of each matrix (the last two dims), by LU factors in c128."""
    return np.asarray(np.linalg.det(x.astype(np.complex128))).astype(x.dtype)


complex_add = holomorphic("ComplexAdd", arithmetic.add)
complex_sub = holomorphic("ComplexSub", arithmetic.sub)
complex_mul = holomorphic("ComplexMul", arithmetic.mul)
complex_div = holomorphic("ComplexDiv", arithmetic.div)
complex_neg = holomorphic("ComplexNeg", unary.neg)
complex_reciprocal = holomorphic("ComplexReciprocal", unary.reciprocal)
complex_sum = holomorphic("ComplexSum", variadic.sum_)
complex_mat_mul = holomorphic("ComplexMatMul", matmul.matmul)
complex_linear = holomorphic("ComplexLinear", linear.linear)
complex_gemm = holomorphic("ComplexGemm", gemm.gemm)
complex_det = holomorphic("ComplexDet", det.det, compute=_det)
complex_einsum = holomorphic("ComplexEinsum", einsum.einsum)
complex_reduce_sum = holomorphic("ComplexReduceSum", reduce.reduce_sum)
complex_reduce_mean = holomorphic("ComplexReduceMean", reduce.reduce_mean)
complex_reduce_prod = holomorphic("ComplexReduceProd", reduce.reduce_prod)
complex_cum_sum = holomorphic("ComplexCumSum", cumulative.cum_sum)
complex_cum_prod = holomorphic("ComplexCumProd", cumulative.cum_prod)
complex_pow = on_complex("ComplexPow", arithmetic.pow_)
complex_sign = on_complex("ComplexSign", unary.sign)
complex_abs = on_complex("ComplexAbs", unary.abs_, infer=real_result)
complex_equal = on_complex("ComplexEqual", comparison.equal)
complex_is_nan = on_complex("ComplexIsNaN", comparison.is_nan)
complex_is_inf = on_complex("ComplexIsInf", comparison.is_inf)
