"""Extracted networks carry the functions that their nodes use: onnx checks them, onnxruntime runs them."""

import numpy as np
import onnx
import onnxruntime
import pytest
from candle_convert.convert.cli.main import run
from onnx import TensorProto, helper

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]


def function(name, nodes):
    return helper.make_function("own", name, ["x"], ["y"], nodes, OPSETS)


def info(name):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])


def network(path):
    """Two functions, one of which calls a third, and a branch that calls one."""
    functions = [
        function("Inner", [helper.make_node("Add", ["x", "x"], ["y"])]),
        function(
            "Outer", [helper.make_node("Inner", ["x"], ["t"], domain="own"), helper.make_node("Neg", ["t"], ["y"])]
        ),
        function("Other", [helper.make_node("Abs", ["x"], ["y"])]),
    ]  # fmt: skip
    branch = helper.make_graph(
        [helper.make_node("Other", ["b"], ["r"], domain="own")], "then", [],
        [info("r")],
    )  # fmt: skip
    same = helper.make_graph(
        [helper.make_node("Identity", ["b"], ["s"])], "else", [],
        [info("s")],
    )  # fmt: skip
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Outer", ["a"], ["b"], domain="own"),
        helper.make_node("If", ["c"], ["d"], then_branch=branch, else_branch=same),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [info("x"), helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [info("d")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=OPSETS, functions=functions, ir_version=8), path)


@pytest.mark.parametrize(
    ("outputs", "functions"), [("a", []), ("b", ["Inner", "Outer"]), ("d", ["Inner", "Outer", "Other"])]
)
def test_extract(tmp_path, outputs, functions):
    network(tmp_path / "m.onnx")
    assert run(["graph", "extract", str(tmp_path / "m.onnx"), str(tmp_path / "p.onnx"), "--outputs", outputs]) == 0
    model = onnx.load(tmp_path / "p.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert [each.name for each in model.functions] == functions
    x = np.array([0.5, -2], np.float32)
    feeds = {"x": x, "c": np.array(True)}
    session = onnxruntime.InferenceSession(tmp_path / "p.onnx")
    (found,) = session.run(None, {each.name: feeds[each.name] for each in session.get_inputs()})
    expected = {"a": np.exp(x), "b": -2 * np.exp(x), "d": 2 * np.exp(x)}[outputs]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
