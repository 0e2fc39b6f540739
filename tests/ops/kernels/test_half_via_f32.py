"""Convolutions, pools and products of 16-bit numbers: rounded once from sums in f32, with weights that stay narrow in
memory."""

import ml_dtypes
import numpy as np
import pytest
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.networks import Net, value
from candle_convert.tests.oracles.native_vs_numpy import natively
from onnx import TensorProto, helper

TYPES = {"f16": (np.float16, 2e-3), "bf16": (ml_dtypes.bfloat16, 1e-2)}


def numbers(name, *shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32).astype(TYPES[name][0])


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((1, 8, 9, 7), (6, 8, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((2, 160, 7, 7), (448, 160, 1, 1), {}),
        ((1, 64, 24, 24), (128, 64, 3, 3), {}),
        ((1, 97, 12, 10), (90, 97, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((2, 256, 7, 7), (256, 256, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((1, 72, 40, 40), (104, 72, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((3, 128, 5, 5), (128, 128, 3, 3), {"strides": [2, 2]}),
        ((1, 12, 10, 9), (12, 1, 3, 3), {"group": 12, "strides": [2, 2]}),
        ((1, 6, 40), (4, 6, 5), {}),
    ],
)
def test_convolutions(name, x, w, attributes):
    inputs = (numbers(name, *x), numbers(name, *w, seed=1), numbers(name, w[0], seed=2))
    scale = np.sqrt(np.prod(w[1:]))
    natively("Conv", Example(inputs, attributes), 22, rtol=TYPES[name][1], atol=scale * TYPES[name][1], constant=[1, 2])


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
        ("AveragePool", {"kernel_shape": [2, 2]}),
        ("GlobalAveragePool", {}),
    ],
)
def test_pools(name, operator, attributes):
    natively(operator, Example((numbers(name, 2, 3, 9, 20),), attributes), 22, rtol=TYPES[name][1], atol=TYPES[name][1])


def kept(session):
    """Arrays that a session holds of its weights."""
    return [item[0] for item in session.packed.values() if isinstance(item, tuple) and isinstance(item[0], np.ndarray)]


def narrow(dtype):
    """Products of 16 bits with a plain weight and with a transposed one."""
    net = Net(4)
    one, other, bias = (
        net.constant((net.rng.normal(size=shape) / 10).astype(dtype)) for shape in ((96, 160), (80, 160), 80)
    )
    net.add("Gemm", net.add("Relu", net.add("MatMul", "x", one)), other, bias, name="y", transB=1)
    kind = TensorProto.FLOAT16
    return net.model([value("x", kind, "rows", 96)], [value("y", kind, "rows", 80)])


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_products(rows):
    x = numbers("f16", rows, 96)
    one = Session(graph_of(narrow(np.float16)), native=False, simplify=False).run(None, {"x": x})[0]
    session = Session(graph_of(narrow(np.float16)), native=True, simplify=True)
    other = session.run(None, {"x": x})[0]
    assert other.dtype == np.float16
    np.testing.assert_allclose(other.astype(np.float32), one.astype(np.float32), rtol=2e-3, atol=4e-3)
    assert all(array.size < 4096 for array in kept(session) if array.dtype == np.float32)


def test_weights_stay_narrow():
    net = Net(4)
    weight = net.constant((net.rng.normal(size=(448, 160, 1, 1)) / 10).astype(np.float16))
    net.add("Conv", net.add("Relu", "x"), weight, name="y")
    ends = [value("x", TensorProto.FLOAT16, 1, 160, 7, 7)], [value("y", TensorProto.FLOAT16, 1, 448, 7, 7)]
    session = Session(graph_of(net.model(*ends)), native=True, simplify=True)
    session.run(None, {"x": numbers("f16", 1, 160, 7, 7)})
    assert {array.dtype for array in kept(session) if array.size >= 448 * 160} == {np.dtype(np.float16)}


def half_chain(dtype):
    """Convolutions of 16 bits with what may stand between them, and a branch that reads what one of them made."""
    net, kind = Net(5), {np.float16: TensorProto.FLOAT16, ml_dtypes.bfloat16: TensorProto.BFLOAT16}[dtype]
    weights = [
        net.constant((net.rng.normal(size=shape) / 9).astype(dtype))
        for shape in ((12, 3, 3, 3), 12, (12, 1, 3, 3), (8, 12, 1, 1))
    ]
    x = net.add("Relu", net.add("Conv", net.add("Cast", "x", to=kind), *weights[:2]))
    y = net.add("Mul", net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), net.constant(np.array(0.5, dtype)))
    y = net.add("Concat", net.add("Conv", y, weights[2], group=12, pads=[1, 1, 1, 1]), y, axis=1)
    y = net.add("Slice", y, *(net.constant(np.array([at])) for at in (6, 18, 1)))
    net.add("Transpose", net.add("Conv", y, weights[3]), name="y", perm=[0, 2, 3, 1])
    net.add("Softmax", x, name="z")
    ends = [value("y", kind, 1, 7, 7, 8), value("z", kind, 1, 12, 14, 14)]
    return net.model([value("x", TensorProto.FLOAT, 1, 3, 16, 16)], ends, opset=22)


@pytest.mark.parametrize("name", TYPES)
def test_segments_round_at_their_ends(name):
    dtype, error = TYPES[name]
    x = np.random.default_rng(0).normal(size=(1, 3, 16, 16)).astype(np.float32)
    expected = Session(graph_of(half_chain(dtype)), native=False, simplify=False).run(None, {"x": x})
    session = Session(graph_of(half_chain(dtype)), native=True, simplify=True)
    found = session.run(None, {"x": x})
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        np.testing.assert_allclose(one.astype(np.float32), other.astype(np.float32), rtol=8 * error, atol=4 * error)
    narrow = [
        node
        for node in session.program.region.nodes
        if any(value.dtype and value.dtype.name == name for value in node.outputs)
    ]
    assert sorted(node.op.name for node in narrow) == ["Cast", "Cast", "Softmax"]


def test_branches_widen_for_themselves():
    """Both branches of a condition convolve a value from around them."""
    net = Net(6)
    weight = net.constant((net.rng.normal(size=(4, 3, 3, 3)) / 5).astype(np.float16))
    shape = [1, 4, 6, 6]
    branches = {}
    for name, sign in (("then_branch", "Relu"), ("else_branch", "Neg")):
        nodes = [
            helper.make_node("Conv", ["h", weight], [f"{name}c"]),
            helper.make_node(sign, [f"{name}c"], [f"{name}y"]),
        ]
        branches[name] = helper.make_graph(nodes, name, [], [value(f"{name}y", TensorProto.FLOAT16, *shape)])
    net.add("Abs", "x", name="h")
    net.add("If", "c", name="y", **branches)
    ends = [value("x", TensorProto.FLOAT16, 1, 3, 8, 8), value("c", TensorProto.BOOL)]
    model, x = net.model(ends, [value("y", TensorProto.FLOAT16, *shape)], opset=22), numbers("f16", 1, 3, 8, 8)
    for truth in (np.array(True), np.array(False)):
        one = Session(graph_of(model), native=False, simplify=False).run(None, {"x": x, "c": truth})[0]
        other = Session(graph_of(model), native=True, simplify=True).run(None, {"x": x, "c": truth})[0]
        np.testing.assert_allclose(other.astype(np.float32), one.astype(np.float32), rtol=4e-3, atol=4e-3)
