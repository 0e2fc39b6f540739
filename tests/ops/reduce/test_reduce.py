"""Reductions and ArgMax/ArgMin: old opsets, every dtype, empty sets, axes of every form, shape arithmetic."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import ml_dtypes
import numpy as np
import pytest
import torch
from candle_convert.runtime.base.errors import FormatError, UsageError
from candle_convert.runtime.ir.op import case
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import model, with_reference

REDUCTIONS = (
    "ReduceSum",
    "ReduceMean",
    "ReduceProd",
    "ReduceMax",
    "ReduceMin",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
)
OF_FLOATS = ("ReduceLogSum", "ReduceLogSumExp")
X = (np.abs(np.random.default_rng(3).normal(size=(2, 3, 4))) + 0.25).astype(np.float32)


def run(name, example, opset=None):
    made, feeds = model(operator(name), example, opset)
    return Session(onnx_graph.graph_of(made)).run(None, feeds)[0]


def onnxruntime_run(name, example, opset):
    import onnxruntime

    made, feeds = model(operator(name), example, opset)
    return onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)[
        0
    ]


@pytest.mark.parametrize("attributes", [{"axes": [1]}, {"axes": [-1, 0], "keepdims": 0}, {}, {"keepdims": 0}], ids=str)
@pytest.mark.parametrize("opset", [11, 13, 17])
@pytest.mark.parametrize("name", [*REDUCTIONS, *OF_FLOATS])
def test_axes_as_attributes(name, opset, attributes):
    if name == "ReduceSum" and opset > 11 and "axes" in attributes:
        return
    got = run(name, case(X, **attributes), opset)
    expected = onnxruntime_run(name, case(X, **attributes), opset)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=2e-6)


AXES = [np.array([1]), np.array([2, 0]), np.array([-1]), np.zeros(0, np.int64), None]


@pytest.mark.parametrize("noop", [0, 1])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("name", [*REDUCTIONS, *OF_FLOATS])
def test_axes_as_inputs(name, axes, keepdims, noop):
    example = case(X, *([] if axes is None else [axes]), keepdims=keepdims, noop_with_empty_axes=noop)
    expected = with_reference(operator(name), example)[0]
    got = run(name, example)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(got, expected, rtol=2e-6)


DTYPES = [np.float16, ml_dtypes.bfloat16, np.float64, np.int32, np.int64, np.uint32, np.uint64]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_dtypes(name, dtype):
    x = (X * 4).astype(dtype)
    got = run(name, case(x, np.array([1])))
    exact = with_reference(operator(name), case(x.astype(np.float64), np.array([1])))[0]
    assert got.dtype == dtype
    rough = {"float16": 1e-3, "bfloat16": 1e-2}.get(np.dtype(dtype).name, 1e-12)
    expected = exact.astype(dtype).astype(np.float64) if np.dtype(dtype).kind in "iu" else exact
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=rough)


LIMITS = [
    ("ReduceMax", np.float32, -np.inf),
    ("ReduceMin", np.float32, np.inf),
    ("ReduceMax", np.int8, -128),
    ("ReduceMin", np.uint8, 255),
    ("ReduceMax", bool, False),
    ("ReduceMin", bool, True),
    ("ReduceSum", np.int64, 0),
    ("ReduceProd", np.float32, 1),
    ("ReduceMean", np.float32, np.nan),
    ("ReduceLogSum", np.float32, -np.inf),
    ("ReduceLogSumExp", np.float64, -np.inf),
    ("ReduceL2", np.float32, 0),
]


@pytest.mark.parametrize(("name", "dtype", "expected"), LIMITS, ids=[f"{row[0]}-{np.dtype(row[1])}" for row in LIMITS])
def test_reductions_of_nothing(name, dtype, expected):
    got = run(name, case(np.zeros((2, 0, 3), dtype), np.array([1]), keepdims=0))
    assert (got.shape, got.dtype) == ((2, 3), np.dtype(dtype))
    np.testing.assert_array_equal(got, np.full((2, 3), expected))


def test_log_sum_exp_of_extremes():
    x = np.array([[-np.inf, -np.inf], [np.inf, 0], [1e38, 1e38], [-1e38, -1e38], [88, 90]], np.float32)
    np.testing.assert_allclose(
        run("ReduceLogSumExp", case(x, np.array([1]), keepdims=0)), torch.logsumexp(torch.from_numpy(x), 1).numpy()
    )


def test_maximum_of_nan_is_nan():
    assert np.isnan(run("ReduceMax", case(np.array([1, np.nan], np.float32))))
    assert np.isnan(run("ReduceMin", case(np.array([1, np.nan], np.float32))))


TIES = np.array([[3, 1, 3, 3], [0, 5, 5, 0]], np.float32)


@pytest.mark.parametrize("opset", [1, 11, 12])
@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
def test_arguments_in_old_opsets(name, opset):
    attributes = {"axis": 1, "keepdims": 0, **({"select_last_index": 1} if opset > 11 else {})}
    np.testing.assert_array_equal(
        run(name, case(TIES, **attributes), opset), onnxruntime_run(name, case(TIES, **attributes), max(opset, 8))
    )


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float64, np.int8, np.uint8, np.int32, np.int64], ids=lambda dtype: np.dtype(dtype).name
)
@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
def test_argument_dtypes(name, dtype):
    example = case((X * 8).astype(dtype), axis=-1, select_last_index=1)
    np.testing.assert_array_equal(run(name, example), with_reference(operator(name), example)[0])


REFUSED = [
    ("ReduceSum", (X, np.array([3]))),
    ("ReduceMax", (X, np.array([-4]))),
    ("ArgMax", (np.zeros((0, 3), np.float32),)),
]


@pytest.mark.parametrize(("name", "inputs"), REFUSED)
def test_what_makes_no_sense_is_refused(name, inputs):
    with pytest.raises(UsageError, match="E-OP-AXIS"):
        run(name, case(*inputs))


@pytest.mark.parametrize(
    "example", [("ReduceSum", case(X, np.array([3]))), ("ArgMin", case(X, axis=3))], ids=["ReduceSum", "ArgMin"]
)
def test_inference_refuses_axes_that_do_not_exist(example):
    made, _ = model(operator(example[0]), example[1], constant=True)
    with pytest.raises(FormatError, match="E-ONNX-NODE"):
        infer(onnx_graph.graph_of(made))


def test_sums_of_many_small_numbers_keep_their_digits():
    x = np.full((1, 1 << 20), 0.1, np.float32)
    for name in ("ReduceSum", "ReduceMean"):
        exact = 0.1 if name == "ReduceMean" else 0.1 * (1 << 20)
        np.testing.assert_allclose(run(name, case(x, np.array([1]))), [[exact]], rtol=2e-6)
