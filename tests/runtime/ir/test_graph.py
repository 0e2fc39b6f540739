"""Graphs: names, what subgraphs see, weights below, functions, and nodes that contradict their operators'
signatures."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.runtime.ir import registry
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.function import instance, invalid_reason, nodes_below, sizes
from candle_convert.runtime.ir.graph import Function, Graph, Node, Reference, Value
from candle_convert.runtime.passes.weights.collect import collect_weights, weights_only
from candle_convert.runtime.tensor.stored_tensor import StoredTensor


def held(graph, name, *numbers):
    graph.weights[name] = StoredTensor.of(np.float32(numbers))
    graph.values[name] = Value(name)
    return graph.values[name]


def nested():
    """A graph with a weight, around one with a weight of the same name."""
    outer = Graph()
    held(outer, "w", 1)
    inner = Graph(parent=outer)
    held(inner, "w", 2)
    held(inner, "v", 3)
    outer.nodes = [
        Node(
            registry.operator("If"),
            [None],
            [Value("y")],
            {"then_branch": inner, "else_branch": Graph(parent=outer)},
            "choice",
        )
    ]
    outer.outputs = outer.nodes[0].outputs
    return outer, inner


def test_new_names_are_new_in_every_graph_and_the_same_on_every_run():
    outer, inner = nested()
    assert [outer.fresh("x"), inner.fresh("x"), outer.fresh("w"), outer.fresh("x.1")] == ["x", "x.1", "w.1", "x.1.1"]


def test_subgraphs_see_the_values_around_them():
    outer, inner = nested()
    held(outer, "far", 0)
    assert inner.find("far") is outer.values["far"]
    assert inner.find("w") is inner.values["w"]
    assert outer.find("v") is None


def test_all_weights_get_names_of_their_own():
    outer, _ = nested()
    assert {name: tensor.numpy().tolist() for name, tensor in collect_weights(outer).items()} == {
        "w": [1],
        "choice/then_branch/w": [2],
        "v": [3],
    }
    assert weights_only(outer)
    assert (len(outer), outer.nodes, outer.notes[0].code) == (3, [], "W-NODES")
    assert not weights_only(outer)


def own(name, *nodes, **more):
    body = Graph()
    body.inputs = [Value("a")]
    build = Builder(body)
    last = body.inputs[0]
    for operator, attributes in nodes:
        last = build.add(operator, [last], attributes)
    body.outputs = [last]
    return Function(name, "own", body=body, **more)


def test_a_call_becomes_nodes_with_names_of_their_own():
    scaled = own("Scaled", ("LeakyRelu", {"alpha": Reference("slope", 1)}), ("Relu", {}), given={"slope": 0.25})
    graph = Graph()
    source, target = Value("x"), Value("y")
    call = Node(scaled, [source], [target], {"slope": 0.5}, "call")
    made = instance(call, graph)
    assert [node.op.name for node in made] == ["LeakyRelu", "Relu"]
    assert (made[0].inputs, made[-1].outputs, made[0].attributes) == ([source], [target], {"alpha": 0.5})
    assert made[0].outputs[0].name.startswith("call/")
    assert instance(Node(scaled, [source], [target]), graph)[0].attributes == {"alpha": 0.25}


def test_a_function_that_passes_its_input_through():
    made = instance(Node(own("Same"), [Value("x")], [Value("y")]), Graph())
    assert [node.op.name for node in made] == ["Identity"]


def test_a_call_without_a_required_attribute():
    with pytest.raises(cc.FormatError, match="slope"):
        instance(Node(own("Scaled", required=("slope",)), [Value("x")], [Value("y")]), Graph())


def test_sizes_of_functions():
    leaf = own("Leaf", ("Relu", {}), ("Relu", {}))
    tree = own("Tree", (leaf, {}), (leaf, {}), ("Relu", {}))
    assert sizes([tree, leaf]) == {leaf: 2, tree: 5}
    tree.body.nodes[0].op = tree
    with pytest.raises(cc.FormatError, match="E-ONNX-RECURSION"):
        sizes([tree])


def test_all_nodes_below():
    outer, inner = nested()
    Builder(inner).add("Relu", [inner.values["w"]])
    assert [node.op.name for node in nodes_below(outer)] == ["If", "Relu"]


@pytest.mark.parametrize(
    ("name", "inputs", "attributes", "why"),
    [
        ("Relu", 1, {}, None),
        ("Relu", 0, {}, "inputs"),
        ("Relu", 2, {}, "inputs"),
        ("Sum", 9, {}, None),
        ("Softmax", 1, {"axis": 0}, None),
        ("Softmax", 1, {"axis": "0"}, "axis"),
        ("Softmax", 1, {"axes": 0}, "unknown attribute"),
        ("Cast", 1, {}, "missing"),
    ],
)
def test_signatures(name, inputs, attributes, why):
    found = invalid_reason(Node(registry.operator(name), [Value("x")] * inputs, [Value("y")], attributes))
    assert (found is None) == (why is None)
    assert why is None or why in found
