"""QDQ fusion of networks quantized by onnxruntime: sessions compute on codes and match onnxruntime bit for bit."""

import numpy as np
import onnx
import onnxruntime
import pytest
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.passes.quantize.qdq_fusion import FuseQDQ
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.networks import Net, value
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
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    expected = onnxruntime.InferenceSession(str(made), options, providers=["CPUExecutionProvider"]).run(
        None, {"image": IMAGE}
    )
    graph = graph_of(onnx.load(made))
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
