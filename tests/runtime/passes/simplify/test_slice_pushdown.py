"""Slice pushdown: results are unchanged, and only the rows that are read are computed."""

import numpy as np
import pytest
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.passes.simplify.slice_pushdown import PushDownSlices
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import F32
from candle_convert.runtime.tensor.stored_tensor import StoredTensor

RNG = np.random.default_rng(0)
WEIGHTS = {
    "scale": RNG.standard_normal(8), "square": RNG.standard_normal((8, 8)), "line": RNG.standard_normal((1, 8)),
    "one": RNG.standard_normal((1, 1, 8)), "mixed": RNG.standard_normal((2, 8, 8)),
}  # fmt: skip


def layer(b, x, w):
    middle = b.add("Add", [x, b.add("MatMul", [b.add("RMSNormalization", [x, w["scale"]]), w["square"]])])
    return b.add(
        "Add",
        [middle, b.add("Swish", [b.add("MatMul", [b.add("LayerNormalization", [middle, w["scale"]]), w["square"]])])],
    )


def attention(b, x, w, keys=None):
    def heads(value):
        return b.add("Transpose", [b.add("Reshape", [value, b.constant([0, 0, 2, 4])])], {"perm": [0, 2, 1, 3]})

    scores = b.add("MatMul", [x, b.add("Transpose", [x], {"perm": [0, 2, 1]})])
    queries, mask = heads(b.add("MatMul", [x, w["square"]])), b.add("Unsqueeze", [scores, b.constant([1])])
    keys = queries if keys is None else heads(keys)
    made = b.add("Attention", [queries, keys, keys, mask])
    return b.add("Reshape", [b.add("Transpose", [made], {"perm": [0, 2, 1, 3]}), b.constant([0, -1, 8])])


CASES = {
    "a layer": (layer, 7),
    "two layers": (lambda b, x, w: layer(b, layer(b, x, w), w), 14),
    "broadcast operands": (lambda b, x, w: b.add("Mul", [b.add("Add", [x, w["line"]]), w["one"]]), 2),
    "a matrix each": (lambda b, x, w: b.add("Relu", [b.add("MatMul", [x, w["mixed"]])]), 1),
    "attention": (lambda b, x, w: attention(b, x, w, x), 6),
    "keys that are queries": (attention, 2),
    "rows that are joined": (
        lambda b, x, w: b.add("Reshape", [b.add("Reshape", [x, b.constant([0, -1])]), b.constant([2, -1, 8])]),
        0,
    ),
    "another axis is normed": (lambda b, x, w: b.add("Relu", [b.add("Softmax", [x], {"axis": 1})]), 1),
    "rows are transposed": (
        lambda b, x, w: b.add("Neg", [b.add("MatMul", [b.add("Softmax", [x], {"axis": 1}), w["square"]])]),
        2,
    ),
}
"""What is computed, and how many nodes the Slice passes."""


def graph_of(build, bounds, given=()):
    graph = Graph()
    x = graph.values["x"] = Value("x", F32, (2, "n", 8))
    graph.inputs = [x]
    for name, array in WEIGHTS.items():
        graph.values[name] = Value(name, F32, array.shape)
        graph.weights[name] = StoredTensor.of(array.astype(np.float32))
    builder = Builder(graph)
    made = build(builder, x, {name: graph.values[name] for name in WEIGHTS})
    part = builder.add("Slice", [made, *(builder.constant([bound]) for bound in bounds)])
    graph.outputs = [builder.add("Identity", [part]), *(graph.nodes[index].outputs[0] for index in given)]
    return graph


def results(graph):
    x = np.random.default_rng(1).standard_normal((2, 5, 8)).astype(np.float32)
    return Session(graph, native=False, simplify=False).run(None, {"x": x})


def after_slices(graph):
    """Nodes whose rows depend on a Slice, but for the Identity at the end."""
    made = set()
    for node in graph.nodes:
        if node.op.name == "Slice" or any(value in made for value in node.inputs):
            made.update(node.outputs)
    return sum(node.op.name != "Slice" and node.outputs[0] in made for node in graph.nodes) - 1


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("bounds", [(-1, 2**62, 1), (1, 3, -2)])
def test_results_stay_the_same(name, bounds):
    build, count = CASES[name]
    graph, moved = graph_of(build, bounds), graph_of(build, bounds)
    assert PushDownSlices().run(moved) == (count > 0)
    assert after_slices(moved) == count
    infer(moved)
    for one, other in zip(results(graph), results(moved), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("bounds", "given"),
    [((0, 4, 2), ()), ((-1, 2**62, 0), (-2,)), ((-1, 2**62, 1), (-2,))],
    ids=["the last axis", "another output", "the rows too"],
)
def test_what_is_read_in_whole_is_computed_in_whole(bounds, given):
    graph, moved = graph_of(layer, bounds, given), graph_of(layer, bounds, given)
    assert not PushDownSlices().run(moved)
    for one, other in zip(results(graph), results(moved), strict=True):
        np.testing.assert_array_equal(one, other)
