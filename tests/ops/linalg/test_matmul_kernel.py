"""Native products of matrices that are no constants against NumPy: transposed ones, rows of whole pages, and columns
that do not fill the last panel."""

import numpy as np
import pytest
from candle_convert.runtime.ir.op import Example
from candle_convert.tests.oracles.native_vs_numpy import natively


@pytest.mark.parametrize(("rows", "depth", "columns"), [(70, 64, 96), (64, 1024, 65), (65, 100, 64), (20, 64, 33)])
@pytest.mark.parametrize("flipped", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_variable_factors(rows, depth, columns, flipped):
    rng = np.random.default_rng(rows)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((rows, depth), (depth, columns)))
    factors = tuple(
        np.ascontiguousarray(matrix.T) if turn else matrix for matrix, turn in zip((a, b), flipped, strict=True)
    )
    natively("Gemm", Example(factors, {"transA": flipped[0], "transB": flipped[1]}), 22, rtol=1e-4, atol=1e-4)


def test_stacks_times_one_matrix():
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((3, 40, 64), (64, 70)))
    natively("MatMul", Example((a, b), {}), 22, rtol=1e-4, atol=1e-4)
