"""Byte table fusion: quantized activations of networks become lookups, with onnxruntime's results."""

import numpy as np
import pytest
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.passes.quantize.byte_table_fusion import FuseByteTables
from candle_convert.runtime.passes.quantize.qdq_fusion import FuseQDQ
from candle_convert.runtime.passes.quantize.table_epilogue import FuseTableEpilogue
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.networks import Net, value
from candle_convert.tests.oracles.exact_onnxruntime import exact_session
from onnx import TensorProto

IMAGE = np.random.default_rng(2).normal(size=(1, 6, 17, 19)).astype(np.float32)
SCALES = {"image": (0.03, 128), "conv": (0.02, 120), "gate": (1 / 255, 0), "y": (0.012, 20), "next": (0.03, 100)}


class Quantized(Net):
    """A network whose values are quantized one by one."""

    def pair(self, x, name, dtype):
        """QuantizeLinear and DequantizeLinear."""
        scale, zero = SCALES[name]
        constants = self.constant(np.float32(scale)), self.constant(dtype(zero - (dtype is np.int8) * 128))
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, *constants), *constants)

    def conv(self, x, groups):
        """A convolution of 6 channels with quantized kernels, one scale for each output channel."""
        kernels = self.rng.integers(-127, 128, (6, 6 // groups, 3, 3)).astype(np.int8)
        scales = self.rng.uniform(0.001, 0.003, 6).astype(np.float32)
        inputs = map(self.constant, (kernels, scales, np.zeros(6, np.int8)))
        return self.add("Conv", x, self.add("DequantizeLinear", *inputs, axis=0), group=groups, pads=[1] * 4)


def network(activation, dtype, groups, shared=False):
    """A quantized convolution, an activation, and another convolution."""
    net = Quantized(4)
    x = net.pair(net.conv(net.pair("image", "image", dtype), groups), "conv", dtype)
    if activation == "Silu":
        y = net.add("Mul", x, net.pair(net.add("Sigmoid", x), "gate", dtype))
    elif activation == "HardSwish6":
        three, six = (net.constant(np.float32(number)) for number in (3, 6))
        gate = net.add("Clip", net.add("Add", x, three), net.constant(np.float32(0)), six)
        y = net.add("Mul", x, net.add("Div", gate, six))
    else:
        y = net.add(activation, x)
    y = net.pair(net.conv(net.pair(y, "y", dtype), 1), "next", dtype)
    net.add("Add", y, x, name="out") if shared else net.add("Identity", y, name="out")
    shape = IMAGE.shape
    return net.model([value("image", TensorProto.FLOAT, *shape)], [value("out", TensorProto.FLOAT, *shape)], 20)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("groups", [1, 6])
@pytest.mark.parametrize("activation", ["Silu", "HardSwish6", "HardSwish", "Gelu", "LeakyRelu", "Tanh"])
def test_activations(activation, groups, dtype):
    model = network(activation, dtype, groups)
    expected = exact_session(model, "ORT_ENABLE_ALL").run(None, {"image": IMAGE})[0]
    graph = graph_of(model)
    found = Session(graph, native=True).run(None, {"image": IMAGE})[0]
    steps = np.abs(found - expected) / SCALES["next"][0]
    assert steps.max() <= 1.01, "a code of the activation that is one off moves sums by less than a step"
    assert (steps > 0.5).mean() < 0.01
    for each in (FuseByteTables(), FuseQDQ(contrib=True), FuseTableEpilogue()):
        each.run(graph)
    names = [node.op.name for node in graph.nodes]
    assert names == ["QuantizeLinear", "QLinearConvLookup", "QLinearConv", "DequantizeLinear", "Identity"]


def test_results_with_other_uses_remain():
    model = network("Silu", np.uint8, 1, shared=True)
    graph = graph_of(model)
    expected = exact_session(model, "ORT_ENABLE_ALL").run(None, {"image": IMAGE})[0]
    found = Session(graph, native=True).run(None, {"image": IMAGE})[0]
    np.testing.assert_allclose(found, expected, atol=1.01 * SCALES["next"][0])
    FuseByteTables().run(graph)
    assert [node.op.name for node in graph.nodes].count("LookupBytes") == 1


def test_two_sources_are_not_a_table():
    net = Quantized(1)
    one, other = (net.pair(name, "image", np.uint8) for name in ("image", "second"))
    net.add("Relu", net.pair(net.add("Sigmoid", net.add("Mul", one, other)), "gate", np.uint8), name="out")
    inputs = [value(name, TensorProto.FLOAT, 2, 3) for name in ("image", "second")]
    graph = graph_of(net.model(inputs, [value("out", TensorProto.FLOAT, 2, 3)], 20))
    assert not FuseByteTables().run(graph)
