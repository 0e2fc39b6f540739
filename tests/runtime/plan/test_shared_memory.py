"""Results that are made inside of larger ones: nothing is copied, and every element is where NumPy's operators say."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import onnx
import pytest
from candle_convert.runtime.session import Session

HEAD = '<ir_version: 9, opset_import: ["" : 18]>\nrun (float[{images},4,6,5] x) => ({outputs}) {{\n'
DENSE = """
a = Relu (x)  b = Sigmoid (a)  c = Concat <axis = 1> (a, b)  d = Tanh (c)  e = Concat <axis = 1> (c, d)  f = Exp (e)
y = Concat <axis = 1> (e, f)"""
CASES = {
    "dense": (DENSE, ["y"], 1),
    "several outputs": (DENSE, ["y", "d", "f"], 1),
    "twice": ("a = Relu (x) y = Concat <axis = 1> (a, a)", ["y"], 1),
    "twice in others": (
        "a = Relu (x) b = Exp (x) c = Concat <axis = 1> (a, b) d = Concat <axis = 1> (b, a) y = Sub (c, d)",
        ["y"],
        1,
    ),
    "an input": ("a = Relu (x) y = Concat <axis = 1> (x, a)", ["y"], 1),
    "used afterwards": (
        "a = Relu (x) b = Exp (x) c = Concat <axis = 1> (a, b) d = Tanh (c) e = Slice (d, zero, four, one) y = Add (a, "
        "e)",
        ["y"],
        1,
    ),
    "overwritten afterwards": (
        "a = Relu (x) b = Exp (x) c = Concat (a, b) d = ScatterElements <axis = 1> (c, places, news) e = Neg (a) y = "
        "Concat (d, e)",
        ["y"],
        1,
    ),
    "batch": (DENSE, ["y"], 2),
    "a view": ("a = Relu (x) s = Reshape (a, flat) t = Exp (s) c = Concat <axis = 0> (s, t) y = Neg (c)", ["y"], 1),
}


def made(text, outputs, images):
    """A session's graph."""
    source = text.replace("Concat (", "Concat <axis = 1> (")
    constants = {
        "zero": "Constant <value_ints = [0]> ()",
        "four": "Constant <value_ints = [4]> ()",
        "ones": "Constant <value_floats = [1.0, 1.0, 1.0, 1.0]> ()",
        "one": "Constant <value_ints = [1]> ()",
        "flat": "Constant <value_ints = [-1]> ()",
        "places": "Constant <value = int64[1,1,1,2] {1, 2}> ()",
        "news": "Constant <value = float[1,1,1,2] {7.0, 8.0}> ()",
    }
    head = HEAD.format(images=images, outputs=", ".join(f"float[...] {name}" for name in outputs)).replace(
        "float[...]", "float[]"
    )
    lines = [f"{name} = {made}" for name, made in constants.items() if f" {name}" in source]
    return onnx.parser.parse_model(head + "\n".join([*lines, source]) + "\n}")


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_numpy(name):
    text, outputs, images = CASES[name]
    model = made(text, outputs, images)
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    feeds = {"x": np.random.default_rng(0).normal(size=(images, 4, 6, 5)).astype("f4")}
    expected = Session(onnx_graph.graph_of(model), native=False).run(None, feeds)
    for threads in (1, 2):
        session = Session(onnx_graph.graph_of(model), native=True, threads=threads, simplify=False)
        for _ in range(2):
            for found, right in zip(session.run(None, feeds), expected, strict=True):
                np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)


def launches(text, images=1):
    """Kernels of a plan."""
    model = made(text, ["y"], images)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    session = Session(onnx_graph.graph_of(model), native=True, threads=1, simplify=False)
    session.run(None, {"x": np.zeros((images, 4, 6, 5), "f4")})
    (plan,) = session.program.plans
    return [repr(launch.kernel) for launch, _ in plan.launches], plan.arena


def test_nothing_is_copied():
    kernels, arena = launches(DENSE)
    assert not [kernel for kernel in kernels if "copy" in kernel]
    assert arena == 0
    assert len([kernel for kernel in launches(DENSE, 2)[0] if "copy" in kernel]) == 6


@pytest.mark.parametrize(
    ("text", "buffers"),
    [
        ("a = Softmax <axis = 1> (x) b = Exp (a) y = Softmax <axis = 1> (b)", 1),
        ("a = Softmax <axis = 1> (x) b = Exp (a) c = Softmax <axis = 1> (b) d = Exp (c) y = Softmax <axis = 1> (d)", 2),
        ("a = Softmax <axis = 1> (x) b = Exp (a) c = Softmax <axis = 1> (b) y = Add (a, c)", 3),
        ("a = Softmax <axis = 1> (x) b = InstanceNormalization (a, ones, ones) y = Softmax <axis = 1> (b)", 1),
    ],
    ids=["last use", "twice", "used afterwards", "norm"],
)
def test_element_wise_kernels_replace_their_operand(text, buffers):
    """Results of 120 elements."""
    assert launches(text)[1] == buffers * -(-120 * 4 // 64) * 64
    model = made(text, ["y"], 1)
    feeds = {"x": np.random.default_rng(0).normal(size=(1, 4, 6, 5)).astype("f4")}
    expected = Session(onnx_graph.graph_of(model), native=False).run(None, feeds)
    (found,) = Session(onnx_graph.graph_of(model), native=True, threads=2, simplify=False).run(None, feeds)
    np.testing.assert_allclose(found, expected[0], rtol=1e-5)
