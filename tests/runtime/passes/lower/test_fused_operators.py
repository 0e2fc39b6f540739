"""Lowering of fused operators: results match their definitions, and no step runs in Python."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import pytest
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.ir.registry import operator
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
    assert example.attributes.get("transBatchA") or all(node.op.domain == "" for node in session.program.region.nodes)
    assert not any(
        isinstance(step, PythonStep)
        for plan in session.program.plans
        for step in plan.steps
        if not example.attributes.get("transBatchA")
    )


def test_functions_that_are_not_known_stay():
    rng = np.random.default_rng(0)
    arrays = tuple(rng.normal(size=shape).astype(np.float32) for shape in ((2, 3), (3, 4), (4,)))
    wanted, found, session = both("FusedGemm", Example(arrays, {"activation": "Softplus"}))
    assert [node.op.name for node in session.program.region.nodes] == ["FusedGemm"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
