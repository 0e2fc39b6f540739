"""cuBLASLt problems: column-major operands against NumPy, and the library's own descriptors if it is installed."""

import ctypes

import numpy as np
import pytest
from candle_convert.runtime.cuda.kernel.contraction_axes import Axes, Contraction
from candle_convert.runtime.cuda.matmul import cublaslt
from candle_convert.runtime.cuda.matmul.blas_operand import blas_problem
from candle_convert.tests.builders.paths import DEVICE_SCRIPTS
from candle_convert.tests.oracles.blas_layout import by_columns

ROWS, COLUMNS, DEPTH = 3, 5, 4


def stored(shape, transposed, seed):
    """A stack of matrices in memory, or of their transposes, and strides of (matrix, row, column)."""
    array = (
        np.random.default_rng(seed)
        .integers(-9, 9, (*shape[:1], *(shape[:0:-1] if transposed else shape[1:])))
        .astype(np.float64)
    )
    stack, down, across = (stride // 8 for stride in array.strides)
    return array, (stack, across, down) if transposed else (stack, down, across)


@pytest.mark.parametrize("sizes", [(ROWS, COLUMNS, DEPTH), (1, COLUMNS, DEPTH), (ROWS, 1, DEPTH), (ROWS, COLUMNS, 1)])
@pytest.mark.parametrize("stacked", ["none", "both", "first"])
@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)])
def test_problems_are_the_products(sizes, stacked, transposed):
    rows, columns, depth = sizes
    count = 1 if stacked == "none" else 2
    a, (a_stack, a_down, a_across) = stored((count, rows, depth), transposed[0], 0)
    b, (b_stack, b_down, b_across) = stored((count if stacked == "both" else 1, depth, columns), transposed[1], 1)
    c = np.zeros((count, rows, columns))
    asked = blas_problem(
        Contraction(
            stack=Axes([count], [a_stack], [b_stack if stacked == "both" else 0], [rows * columns]),
            rows=Axes([rows], [a_down], None, [columns]),
            columns=Axes([columns], None, [b_across], [1]),
            depth=Axes([depth], [a_across], [b_down], None),
        )
    )
    assert (asked.sizes[0], asked.sizes[1] * asked.count, asked.sizes[2]) == (columns, rows * count, depth)
    found = by_columns(c, asked.third, asked.count)
    found[...] = by_columns(b, asked.first, asked.count) @ by_columns(a, asked.second, asked.count)
    expected = (a.transpose(0, 2, 1) if transposed[0] else a) @ (b.transpose(0, 2, 1) if transposed[1] else b)
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize(
    "groups",
    [
        (
            Axes([], [], [], []),
            Axes([4], [1], None, [9]),
            Axes([3, 3], None, [5, 1], [3, 1]),
            Axes([2, 2], [2, 1], [5, 1], None),
        ),
        (Axes([], [], [], []), Axes([4], [8], None, [4]), Axes([4], None, [2], [1]), Axes([4], [2], [8], None)),
        (Axes([], [], [], []), Axes([4], [4], None, [1]), Axes([4], None, [1], [4]), Axes([4], [1], [4], None)),
    ],
    ids=["windows that overlap", "every second element", "a result by columns"],
)
def test_what_is_no_matrix_is_left_to_our_own_kernels(groups):
    assert blas_problem(Contraction(*groups)) is None


def noted(kind, target, attribute, ctype):
    """What a descriptor of the library says."""
    value, size = ctype(), ctypes.c_size_t()
    get = getattr(cublaslt.library(), f"cublasLt{kind}GetAttribute")
    assert get(target, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)), ctypes.byref(size)) == 0
    return value.value


@pytest.mark.skipif(cublaslt.library() is None, reason="cuBLASLt is not installed")
@pytest.mark.parametrize("dtype", cublaslt.TYPES)
def test_the_library_takes_the_description(dtype):
    """Its descriptors need no card; what it has noted is what was meant."""
    asked = blas_problem(
        Contraction(
            stack=Axes([2], [12], [20], [15]),
            rows=Axes([3], [4], None, [5]),
            columns=Axes([5], None, [4], [1]),
            depth=Axes([4], [1], [1], None),
        )
    )
    made = cublaslt.Description(asked, dtype, dtype, bias=True)
    numbers = [
        noted("MatrixLayout", layout, attribute, ctypes.c_int32 if attribute in (0, 5) else ctypes.c_int64)
        for layout in made.layouts
        for attribute in (0, 2, 3, 4, 5, 6)
    ]
    kind = cublaslt.TYPES[dtype]
    assert numbers == [kind, 4, 5, 4, 2, 20, kind, 4, 3, 4, 2, 12, kind, 5, 3, 5, 2, 15]
    attributes = {cublaslt.TRANSPOSE_FIRST: 1, cublaslt.TRANSPOSE_SECOND: 0, cublaslt.EPILOGUE: cublaslt.WITH_BIAS}
    assert {
        attribute: noted("MatmulDesc", made.product, attribute, ctypes.c_int32) for attribute in attributes
    } == attributes


def test_plans_give_their_products_to_the_library():
    """Arguments as they come to the library's place; under the simulator also where there is a card."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    pytest.importorskip("onnx", reason="onnx is not installed")
    # the script takes functions of this file, beside which that is not found
    from candle_convert.tests.device_scripts.runner import run_script

    run_script(DEVICE_SCRIPTS / "cublaslt_matmul.py", card=False)
