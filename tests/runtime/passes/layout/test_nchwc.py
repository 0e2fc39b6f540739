"""NCHW16c layout: kernels of both layouts against the reference, regions of graphs against onnxruntime."""

import candle_convert as cc
import numpy as np
import onnx.parser
import pytest
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.ops.conv.conv import conv
from candle_convert.ops.conv.conv_nchwc import blocked_conv, from_blocks, in_blocks
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.jit.isa import features
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import F32
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tests.oracles.before_and_after_pass import Net, in_onnxruntime

CASES = {
    "1 x 1": ((1, 64, 14, 13), (80, 64, 1, 1), {}, "Relu"),
    "1 x 1, few positions": ((2, 32, 3, 3), (48, 32, 1, 1), {}, ""),
    "1 x 1, every other": ((1, 48, 13, 11), (32, 48, 1, 1), {"strides": [2, 2]}, "Add Relu"),
    "3 x 3, every other": ((1, 32, 9, 17), (96, 32, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}, "Add"),
    "5 x 5, dilated": ((2, 16, 9, 8), (16, 16, 5, 5), {"dilations": [2, 1], "pads": [4, 2, 4, 2]}, "Sigmoid"),
    "3 x 2, uneven padding": ((1, 16, 8, 7), (32, 16, 3, 2), {"strides": [1, 2], "pads": [2, 0, 1, 1]}, "Add Sigmoid"),
    "squares of 4 x 4": ((1, 64, 30, 29), (80, 64, 3, 3), {"pads": [1, 1, 1, 1]}, "Add Relu"),
    "squares of 2 x 2": ((1, 256, 7, 7), (272, 256, 3, 3), {"pads": [1, 1, 1, 1]}, "Add"),
    "3 x 3, long rows": ((1, 16, 9, 30), (40, 16, 3, 3), {"strides": [2, 1], "dilations": [1, 2]}, "Add Sigmoid"),
    "3 x 3, every other of long rows": ((2, 16, 8, 61), (48, 16, 3, 3), {"strides": [2, 2]}, "Relu"),
    "3 x 3, padded long rows": ((2, 32, 23, 49), (40, 32, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}, "Add Relu"),
    "5 x 5, padded long rows": (
        (1, 16, 40, 20),
        (48, 16, 5, 3),
        {"strides": [3, 1], "pads": [2, 4, 3, 0], "dilations": [2, 1]},
        "Add Sigmoid",
    ),
    "one output": ((2, 32, 3, 3), (32, 32, 3, 3), {}, "Sigmoid"),
    "depthwise": ((2, 32, 9, 30), (32, 1, 3, 3), {"group": 32, "pads": [1, 1, 1, 1]}, "Add Sigmoid"),
    "depthwise, every other": ((2, 48, 14, 15), (48, 1, 5, 5), {"group": 48, "strides": [2, 2]}, "Relu"),
    "depthwise, dilated": ((1, 16, 7, 6), (16, 1, 3, 2), {"group": 16, "dilations": [2, 3], "pads": [2] * 4}, "Add"),
    "squares, no padding": ((2, 32, 14, 12), (32, 32, 3, 3), {}, "Add Sigmoid"),
}


@pytest.mark.parametrize("name", CASES)
def test_layouts(name):
    shape, kernel, attributes, after = CASES[name]
    rng = np.random.default_rng(3)
    x, b = (rng.normal(size=size).astype(np.float32) for size in (shape, kernel[:1]))
    w = (rng.normal(size=kernel) / np.sqrt(np.prod(kernel[1:]))).astype(np.float32)
    expected = conv.compute(x, w, b, **attributes)
    other = rng.normal(size=expected.shape).astype(np.float32)
    expected = expected + other if "Add" in after else expected
    expected = (
        np.maximum(expected, 0) if "Relu" in after else 1 / (1 + np.exp(-expected)) if "Sigmoid" in after else expected
    )
    for read in (0, 1):
        for written in (0, 1) if len(w) % 16 == 0 else (0,):
            graph = Graph()
            build = Builder(graph)
            feeds = {
                "x": np.ascontiguousarray(in_blocks(x)) if read else x,
                "other": np.ascontiguousarray(in_blocks(other)) if written else other,
            }
            values = {key: Value(key, F32, array.shape) for key, array in feeds.items()}
            graph.inputs += values.values()
            graph.values.update(values)
            inputs = [values["x"], build.weight(StoredTensor.of(w)), build.weight(StoredTensor.of(b))]
            found = build.add(blocked_conv, inputs, {**attributes, "blocks_in": read, "blocks_out": written})
            for operator in after.split():
                found = build.add(operator, [found, values["other"]] if operator == "Add" else [found])
            graph.outputs.append(found)
            for threads in (1, 2):
                [result] = Session(graph, threads=threads, simplify=False).run(None, feeds)
                np.testing.assert_allclose(from_blocks(result) if written else result, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("size", [(2, 48, 7, 6), (2, 48, 12, 11)])
def test_factors_of_channels(size):
    rng = np.random.default_rng(4)
    x, w, b, scale = (rng.normal(size=each).astype(np.float32) for each in (size, (64, 48, 1, 1), (64,), (2, 48, 1, 1)))
    graph = Graph()
    build = Builder(graph)
    feeds = {"x": np.ascontiguousarray(in_blocks(x)), "scale": scale}
    values = [Value(key, F32, array.shape) for key, array in feeds.items()]
    graph.inputs += values
    graph.values.update((value.name, value) for value in values)
    inputs = [values[0], build.weight(StoredTensor.of(w)), build.weight(StoredTensor.of(b)), values[1]]
    found = build.add(blocked_conv, inputs, {"blocks_in": 1, "blocks_out": 1})
    graph.outputs.append(build.add("Relu", [found]))
    expected = np.maximum(conv.compute(x * scale, w, b), 0)
    for threads in (1, 2):
        [result] = Session(graph, threads=threads, simplify=False).run(None, feeds)
        np.testing.assert_allclose(from_blocks(result), expected, rtol=1e-4, atol=2e-5)


PADDED, POOL = "kernel_shape = [3, 3], pads = [1, 1, 1, 1]", "MaxPool <kernel_shape = [2, 2]>"
GRAPHS = {
    "residual": (
        f"c = Conv (x, w) d = Relu (c) e = Conv <{PADDED}> (d, v) s = Sum (e, c) r = Relu (s) y = Conv (r, u)",
        3,
    ),
    "joined": (
        f"c = Conv (x, w) d = Conv <{PADDED}> (c, v) j = Concat <axis = 1> (c, d) k = Conv (j, t) y = Softmax <axis = "
        "1> (k)",
        3,
    ),
    "undone for a pool": (
        f"c = Conv (x, w) p = {POOL} (c) q = Conv (p, u) r = ReduceMax (q) d = Conv (c, u) y = Add (d, r)",
        0,
    ),
    "undone for one of three": (
        f"c = Conv (x, w) d = Conv (c, w2) e = Conv (d, v2) f = Add (c, d) h = Add (f, e) p = {POOL} (h) y = Conv (p, "
        "u)",
        3,
    ),
    "limits": ("c = Conv (x, w) d = Clip (c, low, high) e = Mul (d, high) y = Conv <strides = [2, 2]> (e, u)", 2),
    "depthwise": (f"c = Conv (x, w) d = Conv <{PADDED}, group = 32> (c, z) r = Relu (d) y = Conv (r, u)", 3),
    "squeeze and excitation": (
        "c = Conv (x, w) m = GlobalAveragePool (c) s = Conv (m, w2) h = Sigmoid (s) e = Mul (h, c) y = Conv (e, u)",
        2,
    ),
    "blocks that are not full": (
        f"c = Conv (x, w3) d = Conv <{PADDED}, group = 24> (c, z3) a = Add (c, d) s = Sigmoid (a) y = Conv (s, u3)",
        3,
    ),
    "not full, converted back": (
        f"c = Conv (x, w3) d = Conv <{PADDED}, group = 24> (c, z3) e = Conv <{PADDED}, group = 24> (d, z3) "
        f"p = {POOL} (e) q = Conv (p, u3) r = ReduceMax (q) s = Conv (e, u3) y = Add (s, r)",
        4,
    ),
    "fewer channels than a block": (f"c = Conv (x, w12) d = Conv <{PADDED}> (c, v12) y = Conv (d, u12)", 0),
    "a result": ("y = Conv (x, w)", 0),
    "few outputs": (f"c = Conv (x, w) y = Conv <{PADDED}> (c, few)", 0),
    "groups": ("c = Conv <group = 2> (x, g) y = Conv (c, u)", 0),
    "odd channels": ("c = Conv (x, u) y = Conv (c, odd)", 0),
    "from outside": ("c = Conv (x, w) d = Add (c, x) y = Conv (d, u)", 0),
    "each channel's own": ("c = Conv (x, w) d = Relu (c) e = Mul (d, each) y = Conv (e, u)", 0),
}
"""Nodes, and how many convolutions take part."""
WEIGHTS = {
    "w": (32, 32, 1, 1),
    "w2": (32, 32, 1, 1),
    "v": (32, 32, 3, 3),
    "v2": (32, 32, 1, 1),
    "u": (20, 32, 1, 1),
    "t": (16, 64, 1, 1),
    "g": (32, 16, 1, 1),
    "odd": (4, 20, 1, 1),
    "few": (8, 32, 3, 3),
    "z": (32, 1, 3, 3),
    "w3": (24, 32, 1, 1),
    "z3": (24, 1, 3, 3),
    "u3": (20, 24, 1, 1),
    "w12": (12, 32, 1, 1),
    "v12": (12, 12, 3, 3),
    "u12": (12, 12, 1, 1),
    "each": (1, 32, 1, 1),
    "low": (),
    "high": (),
}


SIZES = ("1, 32, 10, 9", "n, 32, h, k")


@pytest.mark.parametrize("dims", SIZES)
@pytest.mark.parametrize("name", GRAPHS)
def test_regions(name, dims, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    body, count = GRAPHS[name]
    rng = np.random.default_rng(5)
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[{dims}] x) => (float[a, b, c, d] y) {{ {body} }}'
    )
    used = {name for node in model.graph.node for name in node.input}
    for key, shape in WEIGHTS.items():
        array = rng.normal(size=shape) / np.sqrt(np.prod(shape[1:])) if shape else {"low": -0.25, "high": 0.5}[key]
        if key in used:
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, np.float32), key))
    path = tmp_path / "g.onnx"
    onnx.save(model, path)
    feeds = {"x": rng.normal(size=(1, 32, 10, 9)).astype(np.float32)}
    session = Session(cc.open(path), threads=2, simplify=True)
    known = dims == SIZES[0] or "MaxPool" not in body
    assert sum(node.op is blocked_conv for node in session.program.region.nodes) == (
        count if "avx2" in features() and known else 0
    )
    [expected] = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)
    [found] = session.run(None, feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.skipif("avx2" not in features(), reason="blocks need AVX2")
def test_a_depthwise_convolution_to_one_position():
    """Its output has no blocks, and its 31 channels do not fill theirs."""
    net = Net()
    inner = net.add("Conv", "x", net.normal(31, 4, 1, 1), net.normal(31))
    net.add(
        "Conv", inner, net.normal(31, 1, 1, 3), net.normal(31), group=31, strides=[2, 2], pads=[0, 1, 0, 1], name="y"
    )
    feeds = {"x": np.random.default_rng(1).normal(size=(1, 4, 2, 2)).astype(np.float32)}
    model = net.model(feeds, ["y"])
    [result] = Session(graph_of(model), simplify=True).run(None, feeds)
    np.testing.assert_allclose(result, in_onnxruntime(model, feeds)[0], rtol=1e-4, atol=1e-5)
