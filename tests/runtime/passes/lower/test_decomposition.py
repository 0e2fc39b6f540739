"""Decomposition of operators without kernels: results match their definitions, and no step runs in Python."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import pytest
from candle_convert.runtime.base.errors import FormatError
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.passes.lower.decomposition import LowerOperators
from candle_convert.runtime.plan.plan import PythonStep
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import model

NAMES = ("FusedConv", "FusedGemm", "FusedMatMul", "NhwcConv", "NhwcMaxPool")
CASES = [(name, example) for name in NAMES for example in operator(name, "com.microsoft").examples]


def both(name, example):
    """Outputs of the operator itself and of what replaces it, and the session of the latter."""
    made, feeds = model(operator(name, "com.microsoft"), example, None)
    session = Session(onnx_graph.graph_of(made), native=True, simplify=True)
    wanted = Session(onnx_graph.graph_of(made), native=False, simplify=False).run(None, feeds)[0]
    return wanted, session.run(None, feeds)[0], session


@pytest.mark.parametrize(("name", "example"), CASES)
def test_examples(name, example):
    wanted, found, session = both(name, example)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=1e-4, atol=1e-5)
    assert all(node.op.domain == "" for node in session.program.region.nodes)
    assert not any(isinstance(step, PythonStep) for plan in session.program.plans for step in plan.steps)


def gemm(activation):
    rng = np.random.default_rng(0)
    arrays = tuple(rng.normal(size=shape).astype(np.float32) for shape in ((2, 3), (3, 4), (4,)))
    return Example(arrays, {"activation": activation})


def test_every_activation_is_lowered():
    wanted, found, session = both("FusedGemm", gemm("Softplus"))
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
