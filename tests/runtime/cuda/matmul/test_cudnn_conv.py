"""cuDNN calls of plans, against a Python stand-in; descriptors of the library itself if it is installed."""

import ctypes
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from candle_convert.ops.rules.sliding_window import window
from candle_convert.runtime.base.errors import UnsupportedError
from candle_convert.runtime.cuda.device.device import cuda_support
from candle_convert.runtime.cuda.matmul import cudnn, cudnn_conv
from candle_convert.runtime.cuda.matmul.conv_problem import Convolution, cudnn_problem
from candle_convert.tests.builders.paths import DEVICE_SCRIPTS
from candle_convert.tests.device_scripts.runner import run_script

installed = pytest.mark.skipif(cudnn.library() is None, reason="cuDNN is not installed")
NAMES = {
    **{
        f"CUDNN_DATA_{name}": cudnn.TYPES[dtype]
        for name, dtype in (("FLOAT", "float32"), ("HALF", "float16"), ("BFLOAT16", "bfloat16"))
    },
    "CUDNN_TENSOR_NCHW": cudnn.PLAIN_LAYOUT,
    "CUDNN_CROSS_CORRELATION": cudnn.CROSS_CORRELATION,
    "CUDNN_DETERMINISTIC": cudnn.DETERMINISTIC,
    "CUDNN_DEFAULT_MATH": cudnn.DEFAULT_MATH,
    "CUDNN_TENSOR_OP_MATH": cudnn.TENSOR_MATH,
    "CUDNN_FMA_MATH": cudnn.FMA_MATH,
    "CUDNN_ACTIVATION_RELU": cudnn.RELU,
    "CUDNN_ACTIVATION_IDENTITY": cudnn.IDENTITY,
    "CUDNN_NOT_PROPAGATE_NAN": cudnn.NOT_A_NUMBER_IS_ZERO,
    "CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM": cudnn.IMPLICIT,
    "CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM": cudnn.IMPLICIT_AHEAD,
    "CUDNN_CONVOLUTION_FWD_ALGO_GEMM": cudnn.EXPLICIT,
    "CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD": cudnn.WINOGRAD,
    "CUDNN_CONVOLUTION_BWD_DATA_ALGO_1": cudnn.IMPLICIT_BACK,
    "CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD": cudnn.WINOGRAD_BACK,
    "CUDNN_STATUS_SUCCESS": 0,
    "CUDNN_STATUS_NOT_SUPPORTED": cudnn.NOT_SUPPORTED.start,
    "CUDNN_STATUS_INTERNAL_ERROR": cudnn.NOT_SUPPORTED.stop,
}
"""The headers' names of the numbers that stand in our files."""


def described(x, w, settings, dtype="float32", transposed=False):
    """What is asked of the library for a Conv's attributes."""
    axes = window("Conv", len(x) - 2, w[2:], *settings[:3]).axes(x[2:])
    strides, dilations, pads = (tuple(getattr(axis, name) for axis in axes) for name in ("stride", "dilation", "begin"))
    y = (x[0], w[0], *(axis.out for axis in axes))
    return cudnn_problem(Convolution(x, w, y, strides, dilations, pads, x[1] // w[1], dtype, transposed))


@pytest.mark.parametrize(
    ("x", "w", "settings", "dtype"),
    [
        ((1, 2, 6, 6), (3, 2, 2, 2), ([1, 1], [0, 0, 1, 1], None), "float32"),
        ((1, 2, 6, 6), (3, 2, 2, 2), ([1, 1], [1, 1, 0, 0], None), "float32"),
        ((1, 2, 6, 6), (3, 2, 2, 2), (None, None, None), "float64"),
        ((1, 2, 3, 3, 3, 3), (3, 2, 2, 2, 2, 2), (None, None, None), "float32"),
        ((0, 2, 6, 6), (3, 2, 2, 2), (None, None, None), "float32"),
        ((1 << 16, 2, 1 << 8, 1 << 8), (3, 2, 2, 2), (None, None, None), "float16"),
    ],
    ids=["padded behind only", "padded before only", "doubles", "four axes", "nothing", "more than it counts"],
)
def test_what_the_library_does_not_know_is_left_to_our_own_kernels(x, w, settings, dtype):
    assert described(x, w, settings, dtype) is None


def test_one_axis_is_the_second_of_two():
    asked = described((2, 3, 11), (5, 3, 4), ([3], [2, 2], [2]))
    assert (asked.x, asked.w, asked.y) == ((2, 3, 1, 11), (5, 3, 1, 4), (2, 5, 1, 3))
    assert (asked.strides, asked.dilations, asked.pads) == ((1, 3), (1, 2), (0, 2))


def offer(algorithm, status=0, determinism=1, math=cudnn.FMA_MATH, memory=0):
    return cudnn.Performance(algorithm=algorithm, status=status, determinism=determinism, math=math, memory=memory)


@pytest.mark.parametrize(
    ("offers", "exact", "place"),
    [
        ([offer(1), offer(0)], True, 0),
        (
            [
                offer(6, status=3000),
                offer(6, determinism=0),
                offer(5),
                offer(1, memory=cudnn_conv.WORKSPACE + 1),
                offer(0),
            ],
            True,
            4,
        ),
        ([offer(1, math=cudnn.DEFAULT_MATH), offer(0)], True, 1),
        ([offer(1, math=cudnn.DEFAULT_MATH), offer(0)], False, 0),
        ([offer(4), offer(7)], False, None),
        ([], True, None),
    ],
)
def test_the_first_offer_that_keeps_the_rules_is_taken(offers, exact, place):
    found = cudnn_conv.choose_algorithm(offers, cudnn.FORWARD.algorithms, exact)
    assert found is (None if place is None else offers[place])


def test_exact_products_unless_the_environment_says_otherwise(monkeypatch):
    assert [cudnn.arithmetic(dtype) for dtype in cudnn.TYPES] == [cudnn.FMA_MATH, cudnn.TENSOR_MATH, cudnn.TENSOR_MATH]
    monkeypatch.setenv("CANDLE_TF32", "1")
    assert cudnn.arithmetic("float32") == cudnn.DEFAULT_MATH


@pytest.fixture(scope="module")
def calls():
    """What plans have called, after they computed what the CPU does."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    for name in ("onnx", "torch"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    return json.loads(run_script(DEVICE_SCRIPTS / "cudnn_convolution.py", card=False))


def test_plans_give_their_convolutions_to_the_library(calls):
    assert {name for name, _ in calls} == {*cudnn.SYMBOLS} - {"cudnnGetVersion", "cudnnGetErrorString"}


def headers():
    """The library's headers as one text; skips where they are not beside it."""
    with open("/proc/self/maps") as file:
        loaded = next(line.split()[-1] for line in file if line.rstrip().endswith(cudnn.SONAME))
    found = sorted(Path(loaded).parents[1].glob("include/cudnn*_v9.h"))
    if not found:
        pytest.skip("the headers of cuDNN are not installed")
    return re.sub(r"/\*.*?\*/", "", "\n".join(path.read_text() for path in found), flags=re.DOTALL)


@installed
def test_numbers_are_those_of_the_headers():
    known = {
        name: int(value)
        for name, value in re.findall(r"\b(CUDNN_\w+)(?:\s+CUDNN_DEPRECATED_ENUM)?\s*=\s*(\d+)", headers())
    }
    assert {name: known[name] for name in NAMES} == NAMES


@installed
@pytest.mark.parametrize("way", ["Fwd", "BwdData"])
def test_the_structure_is_that_of_the_headers(way):
    (body,) = re.findall(rf"struct cudnnConvolution{way}AlgoPerfStruct \{{(.*?)\}}", headers(), re.DOTALL)
    kinds = {"float": ctypes.c_float, "size_t": ctypes.c_size_t, "int": ctypes.c_int * 3}
    fields = [(name, kinds.get(kind, ctypes.c_int)) for kind, name in re.findall(r"(\w+)\s+(\w+)(?:\[3\])?;", body)]

    class Structure(ctypes.Structure):
        _fields_ = fields

    def layout(kind):
        return [(getattr(kind, name).offset, getattr(kind, name).size) for name, _ in kind._fields_]

    assert layout(Structure) == layout(cudnn.Performance)
    assert ctypes.sizeof(Structure) == ctypes.sizeof(cudnn.Performance)


@installed
def test_calls_have_the_arguments_of_the_headers(calls):
    text = headers()
    counts = {name: len(re.search(rf"\b{name}\(([^)]*)\);", text)[1].split(",")) for name, _ in calls}
    assert counts == dict(map(tuple, calls))


@installed
def test_the_library_has_a_version():
    assert re.fullmatch(r"9\.\d+\.\d+", cudnn.version())


SHAPES = [
    (x, w, (strides, pads, dilations))
    for (x, w), step, pad, gap in itertools.product(
        [
            ((2, 4, 13), (6, 4, 3)),
            ((2, 4, 9, 12), (6, 2, 3, 2)),
            ((1, 6, 9, 8), (6, 1, 1, 4)),
            ((1, 2, 7, 8, 9), (3, 2, 2, 3, 1)),
        ],
        (1, 2, 3),
        (0, 1, 2),
        (1, 2),
    )
    for rank in [len(x) - 2]
    for strides, pads, dilations in [([step] * rank, [pad] * 2 * rank, [gap] * rank)]
]


@installed
@pytest.mark.parametrize("dtype", cudnn.TYPES)
def test_the_library_counts_the_outputs_that_we_do(dtype):
    """Its descriptors need no card."""
    for x, w, settings in SHAPES:
        asked = described(x, w, settings, dtype)
        made = cudnn.Description(asked)
        found = (ctypes.c_int * len(asked.y))()
        cudnn.call(
            "cudnnGetConvolutionNdForwardOutputDim",
            made.convolution,
            made.arrays["x"],
            made.arrays["w"],
            len(found),
            found,
        )
        assert tuple(found) == asked.y


@installed
def test_the_library_has_noted_what_was_meant():
    asked = described((2, 4, 9, 12), (6, 2, 3, 2), ([2, 1], [1, 0, 1, 0], [1, 2]), "float16")
    made = cudnn.Description(asked, relu=True)
    count, mode, dtype, groups, math = (ctypes.c_int() for _ in range(5))
    pads, strides, dilations = ((ctypes.c_int * 2)() for _ in range(3))
    given = (ctypes.byref(count), pads, strides, dilations, ctypes.byref(mode), ctypes.byref(dtype))
    cudnn.call("cudnnGetConvolutionNdDescriptor", made.convolution, 2, *given)
    cudnn.call("cudnnGetConvolutionGroupCount", made.convolution, ctypes.byref(groups))
    cudnn.call("cudnnGetConvolutionMathType", made.convolution, ctypes.byref(math))
    assert (tuple(pads), tuple(strides), tuple(dilations)) == (asked.pads, asked.strides, asked.dilations)
    assert (mode.value, dtype.value, groups.value, math.value) == (cudnn.CROSS_CORRELATION, 0, 2, cudnn.TENSOR_MATH)
    relu, nan, ceiling = ctypes.c_int(), ctypes.c_int(), ctypes.c_double()
    cudnn.call(
        "cudnnGetActivationDescriptor", made.activation, ctypes.byref(relu), ctypes.byref(nan), ctypes.byref(ceiling)
    )
    assert relu.value == cudnn.RELU
    for name, shape in (("x", asked.x), ("y", asked.y)):
        kind, rank, lengths, steps = ctypes.c_int(), ctypes.c_int(), (ctypes.c_int * 4)(), (ctypes.c_int * 4)()
        cudnn.call(
            "cudnnGetTensorNdDescriptor", made.arrays[name], 4, ctypes.byref(kind), ctypes.byref(rank), lengths, steps
        )
        strides = tuple(step // 2 for step in np.empty(shape, np.float16).strides)
        assert (kind.value, rank.value, tuple(lengths), tuple(steps)) == (2, 4, shape, strides)


@installed
def test_errors_of_the_library_have_its_name_for_them():
    with pytest.raises(UnsupportedError, match="CUDNN_STATUS_BAD_PARAM") as caught:
        cudnn.call(
            "cudnnSetConvolutionGroupCount",
            cudnn.Description(described((1, 2, 4), (2, 2, 2), (None, None, None))).convolution,
            0,
        )
    assert caught.value.code == "E-DEVICE-LIBRARY"


def test_without_a_card_plans_do_without_the_library():
    assert not cudnn.available() or cuda_support().devices
