"""Models written for an opset that lacks their operators: these are expressed by others, and onnxruntime computes the
same."""

import candle_convert as cc
import numpy as np
import onnx
import pytest
from candle_convert.convert.write.pipeline import execute
from candle_convert.convert.write.plan import plan_graph
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.ir.registry import operators
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import model
from candle_convert.tests.oracles.before_and_after_pass import Net, in_onnxruntime, rewritten

LOWERED = sorted(name for (domain, name), operator in operators().items() if operator.lower is not None and not domain)
NOT_IN_ONNXRUNTIME = {("QLinearConv", 2), ("QLinearMatMul", 2)}
"""Examples that onnxruntime runs at no opset: dilations under auto_pad, and a scale for each row."""
EXAMPLES = [
    (name, index)
    for name in LOWERED
    for index in range(len(operators()["", name].examples))
    if (name, index) not in NOT_IN_ONNXRUNTIME
]
BEYOND = {("Attention", 0), ("Attention", 2), ("Attention", 3), ("Attention", 4), ("Attention", 5)}
"""Examples with a cache, windows, counted keys or scores as a result."""


@pytest.mark.parametrize(("name", "index"), EXAMPLES)
def test_examples_at_opset_17(tmp_path, name, index):
    operator = operators()["", name]
    example = operator.examples[index]
    outputs = 1 if name in ("LayerNormalization", "Dropout") else example.outputs
    made, feeds = model(operator, Example(example.inputs, example.attributes, outputs), None)
    expected = Session(graph_of(made)).run(None, feeds)
    graph = graph_of(made)
    if (name, index) in BEYOND:
        with pytest.raises(cc.UnsupportedError, match="E-ONNX-OPSET"):
            plan_graph(graph, tmp_path / "m.onnx", cc.Options(opset=17))
        return
    execute(plan_graph(graph, tmp_path / "m.onnx", cc.Options(opset=17)))
    written = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert [item.version for item in written.opset_import if not item.domain] == [17]
    for one, other in zip(in_onnxruntime(written, feeds), expected, strict=True):
        np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=1e-4, atol=1e-5)


def test_what_is_recognised_can_be_written_for_an_older_opset(tmp_path):
    rng = np.random.default_rng(1)
    given = {name: rng.normal(size=(2, 3, 5, 8)).astype(np.float32) for name in "qkv"}
    net = Net()
    scores = net.add("Div", net.add("MatMul", "q", net.add("Transpose", "k", perm=[0, 1, 3, 2])), 8**0.5)
    y = net.add("MatMul", net.add("Softmax", scores, axis=-1), "v")
    y = net.add("Mul", net.add("Mul", y, 0.5), net.add("Add", net.add("Erf", net.add("Div", y, 2**0.5)), 1.0))
    net.add("Mul", y, net.add("Sigmoid", y), name="y")
    before = net.model(given, ["y"])
    graph = rewritten(before, given, tmp_path)
    assert sorted(node.op.name for node in graph.nodes) == ["Attention", "Gelu", "Swish"]
    execute(plan_graph(graph, tmp_path / "old.onnx", cc.Options(opset=17)))
    for one, other in zip(
        in_onnxruntime(str(tmp_path / "old.onnx"), given), in_onnxruntime(before, given), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("opset", "found"), [(17, set()), (20, {"Gelu"}), (23, {"Attention", "Gelu"}), (24, {"Attention", "Gelu", "Swish"})]
)
def test_simplifying_stays_within_an_opset(tmp_path, opset, found):
    rng = np.random.default_rng(1)
    given = {name: rng.normal(size=(2, 3, 5, 8)).astype(np.float32) for name in "qkv"}
    net = Net()
    scores = net.add("MatMul", "q", net.add("Transpose", "k", perm=[0, 1, 3, 2]))
    y = net.add("MatMul", net.add("Softmax", scores, axis=-1), "v")
    y = net.add("Mul", net.add("Mul", y, 0.5), net.add("Add", net.add("Erf", net.add("Div", y, 2**0.5)), 1.0))
    net.add("Mul", y, net.add("Sigmoid", y), name="y")
    graph = rewritten(net.model(given, ["y"], opset=17), given, tmp_path, opset=opset)
    assert {node.op.name for node in graph.nodes} & {"Attention", "Gelu", "Swish"} == found
    (written,) = (item.version for item in onnx.load(tmp_path / "after.onnx").opset_import if not item.domain)
    assert written == max(17, opset if found else 17)
