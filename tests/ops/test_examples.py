"""Every operator's examples: results against onnxruntime and the ONNX reference evaluator, inference against the
results."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import ml_dtypes
import numpy as np
import pytest
from candle_convert.runtime.ir.registry import operators
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import STRING, of_numpy
from candle_convert.tests.builders.single_node import model, with_onnxruntime, with_reference

WITHOUT_ORACLE = {
    "com.microsoft.NhwcConv": (0, 1),
    "com.microsoft.GatherBlockQuantized": (2,),
    "com.microsoft.GroupQueryAttention": (0, 1, 2, 3),
    "com.microsoft.CausalConvWithState": (3,),
    "com.microsoft.MatMulNBits": (5,),
    "com.microsoft.MultiHeadAttention": (2, 3),
    "com.microsoft.PagedAttention": (0, 1),
    "com.microsoft.MRotaryEmbedding": (0, 1),
    "com.microsoft.SparseAttention": (0,),
    "SoftmaxCrossEntropyLoss": (6,),
    "CastLike": (5,),
    "GlobalLpPool": (0, 1, 2, 3, 4),
    "GroupNormalization": (2,),
    "MaxRoiPool": (0, 1, 2),
    "OneHot": (1, 4),
    "Range": (4,),
    "Scatter": (0, 1),
    "Unique": (3,),
}
"""Examples that neither onnxruntime nor the reference evaluator runs, nor any of our own domain; tests of the operators
compute them otherwise."""
CASES = [
    pytest.param(operator, example, id=f"{operator.domain}{'.' if operator.domain else ''}{operator.name}-{index}")
    for operator in operators().values()
    for index, example in enumerate(operator.examples)
]


def compared(name, index):
    return not name.startswith("candle.") and index not in WITHOUT_ORACLE.get(name, ())


COMPARED = [case for case in CASES if compared(case.id.rpartition("-")[0], int(case.id.rpartition("-")[2]))]


def same(got, expected, tolerance):
    if isinstance(expected, list):
        assert isinstance(got, list)
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            same(one, other, tolerance)
        return
    expected = np.asarray(expected)
    assert got.shape == expected.shape
    if got.dtype.kind in "OUT":
        assert got.tolist() == expected.tolist()
        return
    assert got.dtype == expected.dtype
    if got.dtype.kind == "V" or got.dtype == ml_dtypes.bfloat16:
        got, expected = got.astype(np.float32), expected.astype(np.float32)
    rough = {np.dtype(np.float16): 2e-3, np.dtype(ml_dtypes.bfloat16): 2e-2}.get(got.dtype, 0)
    np.testing.assert_allclose(got, expected, rtol=max(tolerance.rtol, rough), atol=max(tolerance.atol, rough / 10))


@pytest.mark.parametrize(("operator", "example"), COMPARED)
def test_result(operator, example):
    made, feeds = model(operator, example)
    got = Session(onnx_graph.graph_of(made)).run(None, feeds)
    answers = [answer(operator, example) for answer in (with_onnxruntime, with_reference)]
    right = [answer for answer in answers if not isinstance(answer, str)]
    assert right, f"no oracle runs it: {'; '.join(answers)}"
    failures = []
    for answer in right:
        try:
            same(got, list(answer), operator.tolerance)
        except AssertionError as error:
            failures.append(str(error))
    assert len(failures) < len(right), "\n".join(failures)


@pytest.mark.parametrize("constant", [False, True], ids=["fed", "constant"])
@pytest.mark.parametrize(("operator", "example"), CASES)
def test_inference(operator, example, constant):
    made, feeds = model(operator, example, constant=constant)
    graph = onnx_graph.graph_of(made)
    infer(graph)
    for value, result in zip(graph.outputs, Session(graph).run(None, feeds), strict=True):
        if result is None or isinstance(result, list | dict):
            assert value.container
            continue
        assert value.dtype is (STRING if result.dtype.kind in "OUT" else of_numpy(result.dtype))
        if value.shape is None and operator.name.startswith("Reduce") and not constant:
            continue  # several axes that are not known might name the same one twice
        assert value.shape is not None
        assert len(value.shape) == result.ndim
        assert all(
            not isinstance(dim, int) or dim == length for dim, length in zip(value.shape, result.shape, strict=True)
        )
