"""Gemm: C broadcasts to the product, which does not grow."""

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.session import Session
from onnx import helper, numpy_helper

RNG = np.random.default_rng(11)


def gemm(c):
    """x [n, 4] times a matrix, plus a constant."""
    held = {"w": RNG.normal(size=(4, 5)).astype(np.float32), "c": c}
    node = helper.make_node("Gemm", ["x", "w", "c"], ["y"])
    sides = [helper.make_tensor_value_info("x", 1, ["n", 4])], [helper.make_tensor_value_info("y", 1, [None, 5])]
    weights = [numpy_helper.from_array(array, name) for name, array in held.items()]
    made = helper.make_graph([node], "g", *sides, weights)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("shape", [(7, 1), (7, 5)])
def test_c_of_other_rows(native, shape):
    model = gemm(RNG.normal(size=shape).astype(np.float32))
    session = Session(graph_of(model), 1, native=native, simplify=native)
    oracle = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {"x": RNG.normal(size=(7, 4)).astype(np.float32)}
    np.testing.assert_allclose(session.run(None, feeds)[0], oracle.run(None, feeds)[0], rtol=1e-5, atol=1e-6)
    for rows in (1, 3):
        feeds = {"x": RNG.normal(size=(rows, 4)).astype(np.float32)}
        with pytest.raises(Exception, match=r"(?i)gemm"):
            oracle.run(None, feeds)
        with pytest.raises(cc.Error, match="does not broadcast"):
            session.run(None, feeds)
