"""QDQ fusion of networks quantized by onnxruntime: sessions compute on codes and match onnxruntime bit for bit."""

import numpy as np
import onnx
import pytest
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.passes.quantize.qdq_fusion import FuseQDQ
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.networks import Net, value
from candle_convert.tests.oracles.exact_onnxruntime import exact_session
from onnx import TensorProto
from onnxruntime import quantization

IMAGE = np.random.default_rng(2).normal(size=(1, 3, 16, 16)).astype(np.float32)


class Data:
    """One picture to calibrate with."""

    def __init__(self):
        self.left = [{"image": IMAGE}]

    def get_next(self):
        return self.left.pop() if self.left else None

    def set_range(self, *_):
        """All of it, always."""


def residual():
    """A small network with a sum, a concatenation and a classifier."""
    net = Net(1)

    def conv(x, out, inner, size):
        weight, bias = net.weight(out, inner, size, size), net.weight(out, scale=0.1)
        return net.add("Conv", x, weight, bias, pads=[size // 2] * 4)

    x = net.add("MaxPool", net.add("Relu", conv("image", 8, 3, 3)), kernel_shape=[2, 2], strides=[2, 2])
    x = net.add("Relu", net.add("Add", conv(net.add("Relu", conv(x, 8, 8, 3)), 8, 8, 1), x))
    x = net.add("Concat", net.add("Relu", conv(x, 4, 8, 1)), net.add("Relu", conv(x, 6, 8, 3)), axis=1)
    x = net.add("Flatten", net.add("MaxPool", x, kernel_shape=[4, 4], strides=[4, 4]))
    net.add("Gemm", x, net.weight(5, 40), net.weight(5, scale=0.1), name="scores", transB=1)
    return net.model([value("image", TensorProto.FLOAT, 1, 3, 16, 16)], [value("scores", TensorProto.FLOAT, 1, 5)])


@pytest.mark.parametrize("activation", ["QUInt8", "QInt8"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_sessions_compute_on_codes(activation, per_channel, tmp_path):
    onnx.save(residual(), tmp_path / "plain.onnx")
    types = {
        "activation_type": getattr(quantization.QuantType, activation),
        "weight_type": quantization.QuantType.QInt8,
    }
    made = tmp_path / "made.onnx"
    quantization.quantize_static(
        tmp_path / "plain.onnx",
        made,
        Data(),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=per_channel,
        **types,
    )
    graph, expected = graph_of(onnx.load(made)), exact_session(made, "ORT_ENABLE_ALL", 1).run(None, {"image": IMAGE})
    np.testing.assert_array_equal(Session(graph, native=True).run(None, {"image": IMAGE})[0], expected[0])
    FuseQDQ(contrib=True).run(graph)
    assert {node.op.name for node in graph.nodes} == {
        "QuantizeLinear",
        "QLinearConv",
        "MaxPool",
        "QLinearAdd",
        "QLinearConcat",
        "Flatten",
        "QGemm",
        "DequantizeLinear",
    }


@pytest.mark.parametrize("activation", ["Gelu", "Relu", "Sigmoid", "residual", None])
def test_products_with_real_results(activation):
    net, rng = Net(3), np.random.default_rng(5)
    scale, zero = net.constant(np.float32(0.02)), net.constant(np.uint8(120))
    weight = rng.integers(-127, 128, (40, 70)).astype(np.int8), rng.uniform(0.001, 0.003, 70).astype(np.float32)
    codes = net.add("QuantizeLinear", "rows", scale, zero)
    right = net.add("DequantizeLinear", *map(net.constant, (*weight, np.zeros(70, np.int8))), axis=1)
    y = net.add("MatMul", net.add("DequantizeLinear", codes, scale, zero), right)
    y = net.add("Add", y, net.weight(70, scale=0.1))
    if activation is not None:
        y = net.add("Add", y, "other") if activation == "residual" else net.add(activation, y)
    net.add("Identity", y, name="out")
    inputs = [value("rows", TensorProto.FLOAT, 2, 101, 40), value("other", TensorProto.FLOAT, 2, 101, 70)]
    model = net.model(inputs, [value("out", TensorProto.FLOAT, 2, 101, 70)], 20)
    feeds = {"rows": (2, 101, 40), "other": (2, 101, 70)}
    feeds = {name: rng.normal(size=shape).astype(np.float32) for name, shape in feeds.items()}
    expected = exact_session(model, "ORT_ENABLE_ALL").run(None, feeds)[0]
    graph = graph_of(model)
    np.testing.assert_allclose(Session(graph, native=True).run(None, feeds)[0], expected, rtol=1e-5, atol=1e-5)
    FuseQDQ(contrib=True).run(graph)
    assert [node.op.name for node in graph.nodes][:3] == ["QuantizeLinear", "MatMulIntegerToFloat", "Add"]
