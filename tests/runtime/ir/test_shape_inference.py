"""Shape and type inference against onnx's own: whatever it knows of a value, ours knows too, and the same."""

import dataclasses
from pathlib import Path

import candle_convert as cc
import numpy as np
import onnx
import pytest
from candle_convert.formats.containers.onnx.protobuf import Memory
from candle_convert.formats.containers.onnx.reader import graph_of, read_graph
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.ir.shape_inference import infer, kept_inferences
from candle_convert.tests.oracles.onnx_suite import CASES
from onnx import TensorProto, helper, numpy_helper

UNKNOWN_TO_NUMBERS = {"test_loop13_seq": "a sequence that begins empty has elements of no shape yet"}
SAMPLED = 11


def loaded(case):
    if case.model is not None:
        return case.model
    root = Path(onnx.__file__).parent
    return onnx.load(Path(case.model_dir) / "model.onnx" if case.model_dir else root / case.url.removeprefix("onnx/"))


def bare(model):
    """The model without anything that says what its values are, but for its inputs and weights."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.value_info[:]
    for item in copy.graph.output:
        item.ClearField("type")
    return copy


def contradictions(model):
    """What onnx knows of values and ours does not, or says differently."""
    try:
        theirs = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError:
        theirs = onnx.shape_inference.infer_shapes(model, data_prop=True)
    described = read_graph(Memory(theirs.SerializeToString())).values
    ours = graph_of(model)
    infer(ours)
    for item in (*theirs.graph.value_info, *theirs.graph.output):
        wanted, got = described[item.name], ours.values.get(item.name)
        if got is None or wanted.carried.get("opaque") or wanted.dtype is None:
            continue
        if (wanted.dtype, wanted.container) != (got.dtype, got.container):
            yield f"{item.name}: {wanted.dtype} {wanted.container} is {got.dtype} {got.container} here"
        if wanted.shape is None:
            continue
        known = got.shape or ()
        if len(known) != len(wanted.shape) or any(
            isinstance(one, int) and one != other for one, other in zip(wanted.shape, known, strict=True)
        ):
            yield f"{item.name}: {wanted.shape} is {got.shape} here"


@pytest.mark.sampled(SAMPLED)
@pytest.mark.parametrize("start", range(SAMPLED))
def test_ours_knows_what_onnx_knows(start):
    found = {}
    for case in CASES[start::SAMPLED]:
        if case.name not in UNKNOWN_TO_NUMBERS:
            found[case.name] = list(contradictions(bare(loaded(case))))
    assert {name: problems for name, problems in found.items() if problems} == {}


def info(name, kind=TensorProto.FLOAT, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, weights=(), opset=21, **more):
    held = [numpy_helper.from_array(array, name) for name, array in dict(weights).items()]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name=name) for name in outputs], held)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("own", 1)], ir_version=10, **more
    )


def shapes(made):
    graph = graph_of(made)
    infer(graph)
    return {name: value.shape for name, value in graph.values.items()}


def test_symbols_go_through_shape_arithmetic():
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "twelve"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    weights = {"zero": np.int64([0]), "twelve": np.int64([12])}
    assert shapes(model(nodes, [info("x", shape=["batch", 3, 4])], ["y"], weights))["y"] == ("batch", 12)


@pytest.mark.parametrize(
    ("one", "other"), [((None, 2), (1, 5)), (("n", 2), ("m", 5)), (("n", 2), (3, 5)), ((1, 2), ("n", 5))]
)
def test_lengths_of_einsum_are_broadcast(one, other):
    """Whatever lengths symbols stand for: a length of one is repeated."""
    node = helper.make_node("Einsum", ["x", "y"], ["z"], equation="bi,bj->bij")
    found = shapes(model([node], [info("x", shape=one), info("y", shape=other)], ["z"]))["z"]
    for n, m in ((1, 3), (3, 1), (3, 3)):
        known = {"n": n, None: n, "m": m}
        arrays = [np.zeros([known.get(length, length) for length in shape]) for shape in (one, other)]
        right = np.einsum("bi,bj->bij", *arrays).shape
        assert [known.get(length, length) for length in found if length is not None] == [
            length for length, said in zip(right, found, strict=True) if said is not None
        ]


def test_functions_are_inferred_where_they_are_called():
    inner = helper.make_function(
        "own", "Flat", ["a"], ["b"], [helper.make_node("Flatten", ["a"], ["b"])], [helper.make_opsetid("", 21)]
    )
    outer = helper.make_function(
        "own",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Flat", ["a"], ["c"], domain="own"), helper.make_node("Identity", ["c"], ["b"])],
        [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)],
    )
    nodes = [
        helper.make_node("Twice", ["x"], ["y"], domain="own"),
        helper.make_node("Twice", ["w"], ["z"], domain="own"),
    ]
    made = model(nodes, [info("x", shape=["n", 3, 4]), info("w", shape=[2, 5])], ["y", "z"], functions=[inner, outer])
    found = shapes(made)
    assert (found["y"], found["z"]) == (("n", 12), (2, 5))


def test_kept_inferences_follow_changes():
    """Nodes that do not change are inferred once; attributes, weights, operators and inputs may change."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        helper.make_node("Shape", ["t"], ["s"]),
        helper.make_node("Gather", ["s", "place"], ["n"]),
        helper.make_node("Expand", ["one", "n"], ["y"]),
    ]
    weights = {"place": np.int64([0]), "one": np.float32([1])}
    graph = graph_of(model(nodes, [info("x", shape=[2, 3, 4])], ["y"], weights))
    transpose, shape, _, _ = graph.nodes

    def lengths():
        for name in ("t", "y"):
            graph.values[name].shape = None
        infer(graph)
        return graph.values["t"].shape, graph.values["y"].shape

    applied = []
    rule = shape.op.infer
    counted = dataclasses.replace(shape.op, infer=lambda node: (applied.append(node), rule(node)))
    shape.op = counted
    with kept_inferences():
        assert lengths() == ((3, 2, 4), (3,))
        assert lengths() == ((3, 2, 4), (3,))
        assert len(applied) == 1
        transpose.attributes["perm"] = [2, 1, 0]
        assert lengths() == ((4, 3, 2), (4,))
        graph.weights["place"] = cc.StoredTensor.of(np.int64([1]))
        assert lengths() == ((4, 3, 2), (3,))
        assert len(applied) == 2
        transpose.op, transpose.attributes = operator("Identity"), {}
        assert lengths() == ((2, 3, 4), (3,))
        shape.inputs[0] = graph.inputs[0]
        graph.inputs[0].shape = (2, 5, 4)
        assert lengths() == ((2, 5, 4), (5,))
    infer(graph)
    infer(graph)
    assert len(applied) == 6


def test_a_stale_shape_in_the_file_gives_way():
    made = model(
        [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        [info("x", shape=[2, 3])],
        ["y"],
    )
    made.graph.value_info.append(info("h", shape=[7, 7]))
    graph = graph_of(made)
    facts = infer(graph)
    assert graph.values["y"].shape == (2, 3)
    assert [(value.name, shape) for value, shape in facts.stale] == [("h", (7, 7))]


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("MatMul", ["x"], ["y"]),
        helper.make_node("Concat", ["x", "x"], ["y"]),
        helper.make_node("Conv", [], ["y"]),
        helper.make_node("Softmax", ["x"], ["y"], axis="one"),
        helper.make_node("Transpose", ["x"], ["y"], perm=[5, 6]),
        helper.make_node("If", ["x"], ["y"], then_branch=3, else_branch=4),
        helper.make_node("Cast", ["x"], ["y"], to=77),
    ],
    ids=lambda node: node.op_type,
)
def test_nodes_that_are_not_what_their_operator_says(node):
    with pytest.raises(cc.Error, match="E-"):
        shapes(model([node], [info("x", shape=[2, 3])], ["y"]))


@pytest.mark.parametrize(
    ("node", "kind", "weights"),
    [
        (
            helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"]),
            TensorProto.UINT8,
            {"s": np.float32([1]), "z": np.int8([0])},
        ),
        (
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], output_dtype=2),
            TensorProto.FLOAT,
            {"s": np.float32([1]), "z": np.int8([0])},
        ),
        (
            helper.make_node("DequantizeLinear", ["x", "s"], ["y"], block_size=-1),
            TensorProto.UINT8,
            {"s": np.ones((4, 2), np.float32)},
        ),
        (
            helper.make_node("DequantizeLinear", ["x", "s"], ["y"], block_size=3),
            TensorProto.UINT8,
            {"s": np.ones((4, 2), np.float32)},
        ),
    ],
    ids=["zero-point", "zero-point-of-the-result", "negative-blocks", "blocks"],
)
def test_hostile_92_quantization_that_does_not_fit(node, kind, weights):
    with pytest.raises(cc.FormatError, match=r"E-ONNX-(NODE|TYPE)"):
        shapes(model([node], [info("x", kind, [4, 8])], ["y"], weights))
