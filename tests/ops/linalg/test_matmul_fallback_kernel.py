"""Native products of other dtypes and layouts against the NumPy functions; threads change nothing."""

import ml_dtypes
import numpy as np
import pytest
from candle_convert.runtime.ir.op import Example, case
from candle_convert.tests.oracles.native_vs_numpy import natively

RNG = np.random.default_rng(41)
DTYPES = [(np.float64, 1e-12), (np.int64, 0), (np.int32, 0), (np.float16, 4e-3), (ml_dtypes.bfloat16, 3e-2)]
SHAPES = [
    ((5, 7), (7, 33)),
    ((3, 1, 9, 20), (4, 20, 70)),
    ((2, 50, 64), (64, 5)),
    ((6,), (6, 40)),
    ((3, 8, 6), (6,)),
    ((9,), (9,)),
    ((1, 300), (300, 90)),
]


def values(*shape, dtype=np.float32):
    return (RNG.normal(size=shape) * (1 if np.dtype(dtype).kind not in "iu" else 9)).astype(dtype)


@pytest.mark.parametrize(("dtype", "rtol"), DTYPES)
@pytest.mark.parametrize("constant", [(), (1,)])
def test_products(dtype, rtol, constant):
    for one, other in SHAPES:
        natively(
            "MatMul",
            case(values(*one, dtype=dtype), values(*other, dtype=dtype)),
            constant=constant,
            rtol=rtol,
            atol=10 * rtol,
        )


def test_stacks_of_f32_that_repeat():
    for one, other in (*SHAPES[1:2], *SHAPES[3:6], ((2, 1, 5, 8), (1, 3, 8, 9))):
        natively("MatMul", case(values(*one), values(*other)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-4), *DTYPES[:1], *DTYPES[3:4]])
@pytest.mark.parametrize(
    "transposed", [{}, {"transA": 1}, {"transB": 1}, {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}]
)
def test_general_products(dtype, rtol, transposed):
    a = values(*((20, 9) if "transA" in transposed else (9, 20)), dtype=dtype)
    b = values(*((37, 20) if "transB" in transposed else (20, 37)), dtype=dtype)
    for c in (None, values(37, dtype=dtype), values(9, 1, dtype=dtype)):
        inputs = (a, b) if c is None else (a, b, c)
        natively("Gemm", case(*inputs, **transposed), rtol=rtol, atol=10 * rtol)


@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 64, 5), (2, 96, 33), (1, 33, 4), (3, 64, 5)])
def test_gemm_of_few_rows_and_a_transposed_constant(rows, depth, columns):
    rng = np.random.default_rng(depth)
    a, b, c = (rng.normal(size=shape).astype("f4") for shape in ((rows, depth), (columns, depth), (columns,)))
    natively("Gemm", Example((a, b, c), {"transB": 1}), 13, rtol=1e-4, atol=1e-5, constant=[1, 2])
    natively("Gemm", Example((a, b), {"transB": 1}), 13, rtol=1e-4, atol=1e-5, constant=[1])
