"""Valid ONNX models to start from: the tests' networks, the examples of all operators, and small ones for what these
lack."""

from __future__ import annotations

import functools
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from candle_convert.runtime.ir.registry import operators
from candle_convert.tests.builders import networks, single_node
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
OUTSIDE = "weights.data"
"""The file beside models that keeps the bytes of some weights."""


def info(name: str, kind: int = FLOAT, shape: tuple[Any, ...] | None = (2, 3)) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def weight(name: str, array: Any) -> Any:
    return numpy_helper.from_array(np.asarray(array), name)


def model(
    nodes: Any, inputs: Any, outputs: Any, weights: Any = (), functions: Any = (), opset: int = 21, **more: Any
) -> Any:
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(weights), **more)
    domains = ("", "ai.onnx.ml", "com.microsoft", "f")
    versions = {"": opset, "ai.onnx.ml": 3}
    imports = [helper.make_opsetid(domain, versions.get(domain, 1)) for domain in domains]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=list(functions))


def branches() -> Any:
    then = helper.make_graph([helper.make_node("Neg", ["x"], ["t"])], "then", [], [info("t")])
    inner = helper.make_graph([helper.make_node("Abs", ["x"], ["i"])], "inner", [], [info("i")])
    choice = helper.make_node("If", ["c"], ["e"], then_branch=inner, else_branch=then)
    other = helper.make_graph([choice], "else", [], [info("e")], [weight("w", np.ones(3, np.float32))])
    node = helper.make_node("If", ["c"], ["y"], "choice", then_branch=then, else_branch=other)
    return model([node], [info("c", BOOL, ()), info("x")], [info("y")])


def loop() -> Any:
    nodes = [
        helper.make_node("Add", ["s", "x"], ["s2"]),
        helper.make_node("Less", ["i", "most"], ["on"]),
        helper.make_node("ReduceSum", ["s2"], ["total"], keepdims=0),
    ]
    inputs = [info("i", INT64, ()), info("goes", BOOL, ()), info("s")]
    body = helper.make_graph(
        nodes,
        "body",
        inputs,
        [info("on", BOOL, ()), info("s2"), info("total", FLOAT, ())],
        [weight("most", np.array(5))],
    )
    node = helper.make_node("Loop", ["m", "", "x"], ["y", "z"], "loop", body=body)
    return model([node], [info("x")], [info("y"), info("z", FLOAT, (None,))], [weight("m", np.array(3))])


def scan() -> Any:
    nodes = [helper.make_node("Add", ["s", "e"], ["s2"]), helper.make_node("Identity", ["s2"], ["o"])]
    body = helper.make_graph(
        nodes,
        "body",
        [info("s", FLOAT, (3,)), info("e", FLOAT, (3,))],
        [info("s2", FLOAT, (3,)), info("o", FLOAT, (3,))],
    )
    node = helper.make_node(
        "Scan", ["first", "x"], ["last", "y"], "scan", body=body, num_scan_inputs=1, scan_output_directions=[1]
    )
    return model(
        [node], [info("x")], [info("last", FLOAT, (3,)), info("y")], [weight("first", np.zeros(3, np.float32))]
    )


def functions() -> Any:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
    leaky = helper.make_node("LeakyRelu", ["a"], ["b"])
    leaky.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    inner = helper.make_function("f", "Slope", ["a"], ["b"], [leaky], opsets, ["slope"])
    nodes = [helper.make_node("Slope", ["a"], ["t"], domain="f", slope=0.1), helper.make_node("Add", ["t", "b"], ["c"])]
    outer = helper.make_function("f", "Twice", ["a", "b"], ["c", "t"], nodes, opsets)
    call = helper.make_node("Twice", ["x", "x"], ["y", "z"], "call", domain="f")
    return model([call], [info("x")], [info("y"), info("z")], functions=[inner, outer])


def sparse() -> Any:
    values = numpy_helper.from_array(np.array([1, 2], np.float32), "w")
    part = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([0, 4])), [2, 3])
    held = helper.make_node("Constant", [], ["k"])
    held.attribute.append(
        onnx.AttributeProto(name="sparse_value", type=onnx.AttributeProto.SPARSE_TENSOR, sparse_tensor=part)
    )
    nodes = [held, helper.make_node("Add", ["x", "w"], ["t"]), helper.make_node("Mul", ["t", "k"], ["y"])]
    return model(nodes, [info("x")], [info("y")], sparse_initializer=[part])


def external() -> Any:
    made = TensorProto(name="w", data_type=FLOAT, dims=[3, 4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", OUTSIDE), ("offset", "64"), ("length", "48")):
        made.external_data.add(key=key, value=value)
    return model([helper.make_node("MatMul", ["x", "w"], ["y"])], [info("x")], [info("y", FLOAT, (2, 4))], [made])


def strings() -> Any:
    nodes = [
        helper.make_node("StringNormalizer", ["s"], ["n"], case_change_action="UPPER", stopwords=["B"]),
        helper.make_node("StringConcat", ["n", "n"], ["y"]),
        helper.make_node("StringSplit", ["y"], ["z", "count"], delimiter=","),
        helper.make_node(
            "LabelEncoder",
            ["s"],
            ["l"],
            domain="ai.onnx.ml",
            keys_strings=["a", "b"],
            values_int64s=[1, 2],
            default_int64=-1,
        ),
    ]
    outputs = [info("y", STRING, None), info("z", STRING, None), info("count", INT64, None), info("l", INT64, None)]
    return model(nodes, [], outputs, [helper.make_tensor("s", STRING, [2], [b"a", b"c,d"])])


def sequences() -> Any:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=1),
        helper.make_node("SequenceInsert", ["s", "x"], ["t"]),
        helper.make_node("SequenceAt", ["t", "at"], ["a"]),
        helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=1),
        helper.make_node("Optional", ["a"], ["o"]),
        helper.make_node("OptionalHasElement", ["o"], ["has"]),
        helper.make_node("SequenceLength", ["t"], ["n"]),
    ]
    outputs = [info("y", FLOAT, None), info("a", FLOAT, None), info("has", BOOL, ()), info("n", INT64, ())]
    return model(nodes, [info("x")], outputs, [weight("at", np.array(0))])


def quantized() -> Any:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws"], ["dw"], block_size=2, axis=0),
        helper.make_node("MatMul", ["d", "dw"], ["y"]),
    ]
    weights = [
        weight("s", np.float32(0.1)),
        weight("z", np.uint8(3)),
        weight("ws", np.ones((2, 4), np.float32)),
        helper.make_tensor("w", TensorProto.INT4, [3, 4], list(range(-6, 6))),
    ]
    return model(nodes, [info("x", FLOAT, (2, 3))], [info("y", FLOAT, (2, 4))], weights)


def trees() -> Any:
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 0, 0],
        nodes_values=[0.5, 0.0, 0.0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        target_treeids=[0, 0],
        target_nodeids=[1, 2],
        target_ids=[0, 0],
        target_weights=[1.0, 2.0],
    )
    return model([node], [info("x")], [info("y", FLOAT, (2, 1))])


def shapes() -> Any:
    """Shapes that are computed."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["n"]),
        helper.make_node("Mul", ["n", "one"], ["m"]),
        helper.make_node("Concat", ["m", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("Expand", ["r", "shape"], ["e"]),
        helper.make_node("Range", ["zero", "five", "step"], ["range"]),
        helper.make_node("Tile", ["e", "shape"], ["t"]),
        helper.make_node("Slice", ["t", "one", "rest", "axes", "one"], ["y"]),
        helper.make_node("ConstantOfShape", ["shape"], ["k"], value=helper.make_tensor("v", FLOAT, [1], [2.0])),
        helper.make_node("Pad", ["k", "pads"], ["p"]),
        helper.make_node("TopK", ["x", "one"], ["top", "places"], axis=0),
    ]
    weights = [
        weight("one", np.array([1])),
        weight("rest", np.array([2])),
        weight("axes", np.array([0])),
        weight("zero", np.array(0)),
        weight("five", np.array(5)),
        weight("step", np.array(1)),
        weight("pads", np.array([1, 0, 0, 1])),
    ]
    outputs = [info("y", FLOAT, None), info("range", INT64, None), info("p", FLOAT, None), info("top", FLOAT, None)]
    return model(nodes, [info("x")], outputs, weights)


SMALL: tuple[Callable[[], Any], ...] = (
    branches,
    loop,
    scan,
    functions,
    sparse,
    external,
    strings,
    sequences,
    quantized,
    trees,
    shapes,
    lambda: networks.encoder(8, 2, 1, 5),
    lambda: networks.classifier(2),
    lambda: networks.recurrent(3, 4),
    lambda: networks.branching(4),
)


@functools.cache
def _examples() -> list[tuple[Any, Any]]:
    return [
        (operator, example)
        for operator in operators().values()
        if operator.domain != "candle"
        for example in operator.examples
    ]


@functools.cache
def _small(index: int) -> Any:
    return SMALL[index]()


def drawn(draw: random.Random) -> Any:
    """A copy of one of the models."""
    copy = onnx.ModelProto()
    if draw.random() < 0.5:
        copy.CopyFrom(_small(draw.randrange(len(SMALL))))
        return copy
    operator, example = draw.choice(_examples())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made, _ = single_node.model(operator, example, constant=draw.random() < 0.5)
    copy.CopyFrom(made)
    return copy
