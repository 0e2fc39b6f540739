"""The Python interface over networks: read, simplify and write, what is missing, operators of one's own, functions,
weights as numbers."""

import candle_convert as cc
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from candle_convert.runtime.ir import registry
from candle_convert.tests.builders.onnx_files import perceptron, save, value, weight
from onnx import TensorProto, helper

X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def theirs(path):
    return onnxruntime.InferenceSession(str(path)).run(None, {"x": X})[0]


def test_a_network_is_read_simplified_and_written(tmp_path):
    nodes = [
        helper.make_node("Identity", ["x"], ["a"]),
        helper.make_node("Add", ["w", "w"], ["twice"]),
        helper.make_node("Mul", ["a", "twice"], ["b"]),
        helper.make_node("Exp", ["a"], ["unused"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    model = save(tmp_path / "m.onnx", nodes, [value("x")], [value("y")], [weight("w", np.float32([1, -2, 3]))])
    report = (
        cc.onnx.read(model).simplify(max_fold="1MiB").to_opset(21).save(tmp_path / "slim.onnx", external_data="auto")
    )
    made = onnx.load(tmp_path / "slim.onnx")
    onnx.checker.check_model(made, full_check=True)
    assert [node.op_type for node in made.graph.node] == ["Mul", "Relu"]
    assert made.opset_import[0].version == 21
    assert report.outputs == [str(tmp_path / "slim.onnx")]
    np.testing.assert_array_equal(theirs(tmp_path / "slim.onnx"), theirs(model))


def test_parts_and_names(tmp_path):
    model = perceptron(tmp_path / "m.onnx")
    cc.onnx.read(model).extract(["hidden"]).rename({"x": "image"}, {"batch": 2}).save(
        tmp_path / "part.onnx", external_data="never"
    )
    made = onnx.load(tmp_path / "part.onnx")
    assert [value.name for value in made.graph.input] == ["image"]
    assert [dim.dim_value for dim in made.graph.input[0].type.tensor_type.shape.dim] == [2, 3]
    found = onnxruntime.InferenceSession(str(tmp_path / "part.onnx")).run(None, {"image": X[:2]})[0]
    seen = []
    cc.InferenceSession(model).run_with_taps(
        {"x": X[:2]}, taps=r"^hidden$", on_tap=lambda name, array: seen.append((name, array))
    )
    assert [name for name, _ in seen] == ["hidden"]
    np.testing.assert_allclose(seen[0][1], found, rtol=1e-5)


def test_what_cannot_be_asked_of_a_network(tmp_path):
    cc.save_file({"w": np.ones(2, np.float32)}, tmp_path / "w.safetensors")
    with pytest.raises(cc.UsageError, match="weights only"):
        cc.onnx.read(tmp_path / "w.safetensors")
    with pytest.raises(cc.UsageError, match="unknown pass"):
        cc.onnx.read(perceptron(tmp_path / "m.onnx")).simplify(skip=["nothing"])


def swishes(path):
    nodes = [
        helper.make_node("Swish", ["x"], ["a"], "first", domain="my.domain", slope=2.0),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    return save(path, nodes, [value("x")], [value("y")], domains=["my.domain"])


@pytest.fixture
def registered():
    """Leaves the registry as it was."""
    before = dict(registry.operators())
    yield
    registry.operators().clear()
    for operator in before.values():
        registry.register(operator)


def test_what_is_missing_is_listed_until_it_is_registered(tmp_path, registered):
    model = swishes(tmp_path / "m.onnx")
    (found,) = cc.ops.missing(model)
    assert found[:4] == ("Swish", "my.domain", 1, 1)
    assert "no such operator" in found[4]
    seen = []

    @cc.register_op("my.domain", "Swish", since=1)
    def swish(ctx, x):
        seen.append((ctx.name, dict(ctx.attributes), ctx.wanted))
        return x * cc.sigmoid(ctx.attributes["slope"] * x)

    assert cc.ops.missing(model) == []
    assert cc.ops.missing(cc.open(model)) == []
    (y,) = cc.InferenceSession(model).run(["y"], {"x": X})
    np.testing.assert_allclose(y, np.maximum(X / (1 + np.exp(-2 * X)), 0), rtol=1e-5)
    assert y.dtype == np.float32
    assert seen == [("first", {"slope": 2.0}, (True,))]


def test_registering_as_the_interface_shows(tmp_path, registered):
    cc.register_op("my.domain", "Swish", since=1)(lambda ctx, x: x * cc.sigmoid(x))
    (y,) = cc.InferenceSession(swishes(tmp_path / "m.onnx")).run(None, {"x": X})
    np.testing.assert_allclose(y, torch.relu(torch.nn.functional.silu(torch.tensor(X))), rtol=1e-5)


def test_shapes_follow_where_a_rule_is_given_and_several_outputs(tmp_path, registered):
    def shapes(node):
        for index in range(2):
            node.set(index, node.dtype(0), node.shape(0))

    cc.register_op("my.domain", "Halves", infer=shapes)(lambda ctx, x, y=None: (x / 2, (x if y is None else y) / 4))
    nodes = [
        helper.make_node("Halves", ["x"], ["a", "b"], domain="my.domain"),
        helper.make_node("Sub", ["a", "b"], ["y"]),
    ]
    model = save(tmp_path / "m.onnx", nodes, [value("x")], [value("y")], domains=["my.domain"])
    network = cc.onnx.read(model).infer()
    assert [each.shape for each in network.graph.nodes[0].outputs] == [("batch", 3)] * 2
    for native in (False, True):
        from candle_convert.runtime.session import Session

        np.testing.assert_allclose(Session(cc.open(model), native=native).run(None, {"x": X})[0], X / 4, rtol=1e-6)


def test_operators_that_exist_are_kept(registered):
    with pytest.raises(cc.UsageError, match="already"):
        cc.register_op("ai.onnx", "Relu")(lambda ctx, x: x)
    cc.register_op("", "Relu", replace=True)(lambda ctx, x: x)
    assert registry.operator("Relu").compute is not None


FUNCTIONS = [
    (cc.sigmoid, torch.sigmoid),
    (cc.relu, torch.relu),
    (cc.gelu, torch.nn.functional.gelu),
    (cc.silu, torch.nn.functional.silu),
    (cc.erf, torch.erf),
    (lambda x: cc.softmax(x, axis=0), lambda x: torch.softmax(x, 0)),
    (lambda x: cc.gelu(x, approximate="tanh"), lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
]


@pytest.mark.parametrize(("ours", "other"), FUNCTIONS)
def test_functions_are_torchs(ours, other):
    found = ours(X)
    assert found.dtype == cc.float32
    np.testing.assert_allclose(found, other(torch.tensor(X)).numpy(), rtol=1e-5, atol=1e-6)


def test_quantized_weights_become_numbers(tmp_path):
    values = np.random.default_rng(1).normal(size=(6, 64)).astype(np.float32)
    cc.save_file({"a.weight": values, "b": values[0]}, tmp_path / "m.safetensors")
    cc.quantize(tmp_path / "m.safetensors", tmp_path / "q.gguf", "q8_0")
    held = cc.open(tmp_path / "q.gguf")["a.weight"]
    assert held.qtype is not None
    np.testing.assert_array_equal(
        held.dequantize().numpy(), cc.decode(np.frombuffer(held.raw(), np.uint8).reshape(6, -1), "q8_0", (6, 64))
    )
    np.testing.assert_array_equal(
        held[2:4].dequantize("f16").numpy(), held.dequantize().numpy()[2:4].astype(np.float16)
    )
    plain = cc.open(tmp_path / "m.safetensors")["a.weight"]
    np.testing.assert_array_equal(plain.dequantize("f32").numpy(), values)


def test_made_up_dtypes_of_inputs_reach_the_function(tmp_path, registered):
    cc.register_op("my.domain", "Count")(lambda ctx, x: np.array(x.size, np.int64))
    nodes = [helper.make_node("Count", ["x"], ["y"], domain="my.domain")]
    model = save(tmp_path / "m.onnx", nodes, [value("x")], [value("y", TensorProto.INT64, ())], domains=["my.domain"])
    assert cc.InferenceSession(model).run(None, {"x": X})[0] == 12
