"""Operand types: those of all operators against ONNX and onnxruntime, and nodes whose inputs contradict them."""

import candle_convert as cc
import numpy as np
import onnx
import pytest
from candle_convert.formats.containers.onnx.opset_lowering import TYPE_NAMES
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.ir.operand_types import UNLIMITED, _formals, most_outputs
from candle_convert.runtime.ir.registry import operators
from candle_convert.runtime.ir.shape_inference import check_types
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.random_examples import contrib
from onnx import TensorProto, helper

KNOWN = {f"tensor({theirs})": ours for ours, theirs in TYPE_NAMES.items()}
CONTAINERS = {"seq": "sequence", "optional": "optional", "map": "map"}
DEFINED = [
    pytest.param(op, id=f"{op.domain}.{op.name}") for op in operators().values() if not op.domain.startswith("candle")
]


def schema(operator):
    if onnx.defs.has(operator.name, operator.domain):
        return onnx.defs.get_schema(operator.name, operator.domain)
    return contrib()[operator.domain, operator.name]


def kinds(strings):
    """Our names of dtypes and containers; dtypes that we do not have are left out."""
    found = {KNOWN.get(text) or CONTAINERS.get(text.partition("(")[0]) for text in strings}
    return found - {None}


@pytest.mark.parametrize("operator", DEFINED)
def test_types_are_those_of_the_definitions(operator):
    defined = schema(operator)
    allowed = {constraint.type_param_str: constraint.allowed_type_strs for constraint in defined.type_constraints}
    variables = [formal.typeStr if hasattr(formal, "typeStr") else formal.type_str for formal in defined.inputs]
    formals = _formals(operator)
    assert len(formals) == len(defined.inputs)
    for index, (variable, formal, known) in enumerate(zip(variables, defined.inputs, formals, strict=True)):
        assert known.kinds == kinds(allowed.get(variable, [variable])), formal.name
        variadic = "Variadic" in str(formal.option)
        same = [other for other, name in enumerate(variables) if name == variable and other != index]
        homogeneous = getattr(formal, "is_homogeneous", getattr(formal, "isHomogeneous", True))
        if len(known.kinds) > 1 and (homogeneous or not variadic):
            assert bool(known.variable) == bool(same or variadic)
            assert all(formals[other].variable == known.variable for other in same)
    most = defined.max_output
    assert most_outputs(operator) == (UNLIMITED if most > 1000 else most)


def info(name, kind, shape=(2,)):
    return helper.make_tensor_value_info(name, kind, shape)


FLOAT, DOUBLE, BOOL, INT64, STRING = (
    TensorProto.FLOAT,
    TensorProto.DOUBLE,
    TensorProto.BOOL,
    TensorProto.INT64,
    TensorProto.STRING,
)
SEQUENCE = helper.make_value_info("x", helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, (2,))))


def branch(op, *inputs):
    return helper.make_graph(
        [helper.make_node(op, list(inputs), ["inner"], "culprit")], "branch", [], [onnx.ValueInfoProto(name="inner")]
    )


def body(op, kind):
    """A body that negates its state, or something like it."""
    nodes = [helper.make_node(op, ["s"], ["next"], "culprit"), helper.make_node("Identity", ["goes"], ["on"])]
    inputs = [info("i", INT64, ()), info("goes", BOOL, ()), info("s", kind)]
    return helper.make_graph(nodes, "body", inputs, [info("on", BOOL, ()), info("next", kind)])


def scanned(op, kind):
    return helper.make_graph(
        [helper.make_node(op, ["s"], ["next"], "culprit")], "body", [info("s", kind, ())], [info("next", kind, ())]
    )


def calling(op):
    inner = helper.make_function(
        "f", "F", ["a"], ["b"], [helper.make_node(op, ["a"], ["b"], "culprit")], [helper.make_opsetid("", 18)]
    )
    return [inner]


WRONG = {
    "bool": ([helper.make_node("Neg", ["x"], ["y"], "culprit")], [info("x", BOOL)]),
    "string": ([helper.make_node("Add", ["x", "x"], ["y"], "culprit")], [info("x", STRING)]),
    "float": ([helper.make_node("And", ["x", "x"], ["y"], "culprit")], [info("x", FLOAT)]),
    "two types": ([helper.make_node("Add", ["x", "z"], ["y"], "culprit")], [info("x", FLOAT), info("z", DOUBLE)]),
    "variadic": (
        [helper.make_node("Concat", ["x", "z"], ["y"], "culprit", axis=0)],
        [info("x", FLOAT), info("z", DOUBLE)],
    ),
    "sequence": ([helper.make_node("Relu", ["x"], ["y"], "culprit")], [SEQUENCE]),
    "condition": (
        [
            helper.make_node(
                "If", ["x"], ["y"], "culprit", then_branch=branch("Neg", "x"), else_branch=branch("Abs", "x")
            )
        ],
        [info("x", FLOAT, ())],
    ),
    "branch": (
        [helper.make_node("If", ["x"], ["y"], then_branch=branch("Identity", "x"), else_branch=branch("Neg", "x"))],
        [info("x", BOOL, ())],
    ),
    "loop": (
        [helper.make_node("Loop", ["m", "", "x"], ["y"], body=body("Neg", BOOL))],
        [info("m", INT64, ()), info("x", BOOL)],
    ),
    "loop-softmax": (
        [helper.make_node("Loop", ["m", "", "x"], ["y"], body=body("Softmax", BOOL))],
        [info("m", INT64, ()), info("x", BOOL)],
    ),
    "scan": ([helper.make_node("Scan", ["x"], ["y"], body=scanned("Neg", BOOL), num_scan_inputs=1)], [info("x", BOOL)]),
    "function": ([helper.make_node("F", ["x"], ["y"], domain="f")], [info("x", BOOL)]),
    "behind another": (
        [helper.make_node("Not", ["x"], ["t"]), helper.make_node("Softmax", ["t"], ["y"], "culprit")],
        [info("x", BOOL)],
    ),
    "contrib": ([helper.make_node("FastGelu", ["x"], ["y"], "culprit", domain="com.microsoft")], [info("x", INT64)]),
}


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_types_are_named_before_anything_runs(name, native):
    nodes, inputs = WRONG[name]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("f", 1)]
    made = helper.make_model(graph, opset_imports=opsets, functions=calling("Neg") if name == "function" else [])
    arrays = {FLOAT: np.ones(2, np.float32), DOUBLE: np.ones(2), BOOL: np.ones(2, bool), INT64: np.ones(2, np.int64)}
    arrays[STRING] = np.array(["a", "b"], object)
    feeds = {}
    for item in inputs:
        tensor = item.type.tensor_type
        array = arrays.get(tensor.elem_type, np.ones(2, np.float32))
        feeds[item.name] = (
            [array] if item is SEQUENCE else array.reshape(-1)[0].reshape(()) if not tensor.shape.dim else array
        )
    for attempt in (check_types, lambda graph: Session(graph, native=native, threads=1).run(None, feeds)):
        with pytest.raises(cc.FormatError, match=r"node '.*culprit'") as caught:
            attempt(graph_of(made))
        assert caught.value.code == "E-ONNX-TYPE"
        assert caught.value.exit_code == 3


def test_branches_have_no_inputs():
    inner = helper.make_graph(
        [helper.make_node("Neg", ["other"], ["t"])], "then", [info("other", FLOAT)], [info("t", FLOAT)]
    )
    node = helper.make_node("If", ["c"], ["y"], "choice", then_branch=inner, else_branch=branch("Abs", "x"))
    graph = helper.make_graph([node], "g", [info("c", BOOL, ()), info("x", FLOAT)], [onnx.ValueInfoProto(name="y")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    for native in (False, True):
        with pytest.raises(cc.FormatError, match="then_branch has 1 input,"):
            Session(graph_of(made), native=native).run(None, {"c": np.array(True), "x": np.ones(2, np.float32)})
