"""Decomposition of operators without kernels: results match their definitions, and no step runs in Python."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import pytest
from candle_convert.runtime.base.errors import FormatError
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.ir.registry import operator, operators
from candle_convert.runtime.passes.lower.decomposition import LowerOperators
from candle_convert.runtime.plan.kernel_api import planner_of
from candle_convert.runtime.plan.plan import PythonStep
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import model

CASES = [
    pytest.param(operator, example, id=f"{operator.name}-{index}")
    for operator in operators().values()
    if operator.domain == "com.microsoft" and operator.lower is not None and planner_of(operator) is None
    for index, example in enumerate(operator.examples)
]
NUMPY_OF_STANDARD = {"LinearAttention"}
"""Operators that become ones without kernels."""


def both(operator, example, named=False):
    """Outputs of the operator itself and of what replaces it, and the session of the latter; `named` dims are not known
    before a run."""
    made, feeds = model(operator, example, None)
    graph = onnx_graph.graph_of(made)
    for value in graph.inputs if named else ():
        value.shape = tuple(f"{value.name}_{axis}" for axis in range(len(value.shape)))
    session = Session(graph, native=True, simplify=True)
    wanted = Session(onnx_graph.graph_of(made), native=False, simplify=False).run(None, feeds)
    return wanted, session.run(None, feeds), session


@pytest.mark.parametrize(("operator", "example"), CASES)
@pytest.mark.parametrize("named", [False, True], ids=["fixed", "named"])
def test_examples(operator, example, named):
    expected, results, session = both(operator, example, named)
    for wanted, found in zip(expected, results, strict=True):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        atol = 0 if wanted.dtype.kind in "iu" else 1e-5
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=1e-4, atol=atol)
    if not named and operator.name not in NUMPY_OF_STANDARD:
        assert all(node.op.domain == "" for node in session.program.region.nodes)
        assert not any(isinstance(step, PythonStep) for plan in session.program.plans for step in plan.steps)


def gemm(activation):
    rng = np.random.default_rng(0)
    arrays = tuple(rng.normal(size=shape).astype(np.float32) for shape in ((2, 3), (3, 4), (4,)))
    return Example(arrays, {"activation": activation})


def test_every_activation_is_lowered():
    (wanted,), (found,), session = both(operator("FusedGemm", "com.microsoft"), gemm("Softplus"))
    assert [node.op.name for node in session.program.region.nodes] == ["Gemm", "Softplus"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_functions_that_are_not_known_stay():
    made, feeds = model(operator("FusedGemm", "com.microsoft"), gemm("Mystery"), None)
    graph = onnx_graph.graph_of(made)
    assert not LowerOperators().run(graph)
    assert [node.op.name for node in graph.nodes] == ["FusedGemm"]
    assert sorted(graph.values) == sorted(value.name for value in (*graph.inputs, *graph.outputs))
    with pytest.raises(FormatError, match="'Mystery' is not known"):
        Session(graph, native=True, simplify=True).run(None, feeds)
