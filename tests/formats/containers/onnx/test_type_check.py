"""Type checking of ONNX graphs: valid models pass, and what onnx.checker and onnxruntime both refuse is found."""

import json
import random

import numpy as np
import onnx
import onnxruntime
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.formats.containers.onnx.checker import findings
from candle_convert.formats.containers.onnx.protobuf import Memory
from candle_convert.runtime.base.errors import Error
from candle_convert.tests.builders.sampling import every

make = onnx.helper
FLOAT, HALF, INT = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.INT64


def errors(model):
    """The codes of what is wrong with a model."""
    try:
        return [finding.code for finding in findings(Memory(model.SerializeToString())) if finding.severity == "error"]
    except Error as error:
        return [error.code]


def refused_by_checker(model):
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return True
    return False


def refused_by_onnxruntime(model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # whatever class of onnxruntime's own
        return "NOT_IMPLEMENTED" not in str(error)
    return False


def info(name, kind, shape=(2, 2)):
    return make.make_tensor_value_info(name, kind, shape)


def built(nodes, inputs, outputs, weights=(), functions=()):
    held = [onnx.numpy_helper.from_array(array, name) for name, array in weights]
    opsets = [make.make_opsetid("", 18), *([make.make_opsetid("local", 1)] if functions else [])]
    return make.make_model(
        make.make_graph(nodes, "g", inputs, outputs, held), opset_imports=opsets, ir_version=9, functions=functions
    )


def half(*shape):
    return np.ones(shape, np.float16)


def main_graph():
    return built(
        [make.make_node("MatMul", ["x", "w"], ["y"])], [info("x", FLOAT)], [info("y", FLOAT)], [("w", half(2, 2))]
    )


def subgraph():
    then, other = (
        make.make_graph([make.make_node("Add", ["x", weight], [name])], name, [], [info(name, FLOAT)])
        for name, weight in (("then", "w"), ("other", "x"))
    )
    node = make.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    return built(
        [node], [info("x", FLOAT), info("c", onnx.TensorProto.BOOL, ())], [info("y", FLOAT)], [("w", half(2, 2))]
    )


def function():
    body = make.make_function(
        "local",
        "Product",
        ["a", "b"],
        ["c"],
        [make.make_node("MatMul", ["a", "b"], ["c"])],
        [make.make_opsetid("", 18)],
    )
    node = make.make_node("Product", ["x", "w"], ["y"], domain="local")
    return built([node], [info("x", FLOAT)], [info("y", FLOAT)], [("w", half(2, 2))], [body])


def output():
    return built([make.make_node("Cast", ["x"], ["y"], to=HALF)], [info("x", FLOAT)], [info("y", FLOAT)])


def chain():
    nodes = [
        make.make_node("Cast", ["x"], ["h"], to=HALF),
        make.make_node("Relu", ["h"], ["r"]),
        make.make_node("Concat", ["r", "x"], ["y"], axis=0),
    ]
    return built(nodes, [info("x", FLOAT)], [info("y", FLOAT, (4, 2))])


def integer_weight():
    return built(
        [make.make_node("Add", ["x", "w"], ["y"])],
        [info("x", FLOAT)],
        [info("y", FLOAT)],
        [("w", np.ones((2, 2), np.int64))],
    )


def index_that_is_a_float():
    return built(
        [make.make_node("Gather", ["x", "w"], ["y"])],
        [info("x", FLOAT)],
        [info("y", FLOAT)],
        [("w", np.ones(2, np.float32))],
    )


def rank():
    return built(
        [make.make_node("MatMul", ["x", "w"], ["y"])],
        [info("x", FLOAT)],
        [info("y", FLOAT)],
        [("w", np.ones((3, 2), np.float32))],
    )


def undefined():
    return built([make.make_node("Relu", ["z"], ["y"])], [info("x", FLOAT)], [info("y", FLOAT)])


def twice():
    return built(
        [make.make_node("Relu", ["x"], ["y"]), make.make_node("Abs", ["x"], ["y"])],
        [info("x", FLOAT)],
        [info("y", FLOAT)],
    )


BROKEN = [main_graph, subgraph, function, output, chain, integer_weight, index_that_is_a_float, rank, undefined, twice]


@pytest.mark.parametrize("model", BROKEN, ids=lambda model: model.__name__)
def test_what_peers_refuse_is_found(model, tmp_path, capsys):
    made = model()
    assert refused_by_checker(made) or refused_by_onnxruntime(made)
    onnx.save(made, tmp_path / "m.onnx")
    assert run(["check", str(tmp_path / "m.onnx"), "--json"]) in (1, 3)
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False


def test_the_message_names_both_values_and_types(tmp_path, capsys):
    onnx.save(main_graph(), tmp_path / "m.onnx")
    assert run(["check", str(tmp_path / "m.onnx")]) == 1
    shown = "".join(capsys.readouterr())
    for word in ("MatMul", "'x'", "f32", "'w'", "f16"):
        assert word in shown


def suite(kinds):
    """The models of onnx's own tests."""
    from pathlib import Path

    from onnx.backend.test.loader import load_model_tests

    for kind in kinds:
        for case in load_model_tests(kind=kind):
            if case.model is not None:
                yield case.name, case.model
            elif case.model_dir is not None and (Path(case.model_dir) / "model.onnx").exists():
                yield case.name, onnx.load(Path(case.model_dir) / "model.onnx")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_valid_models_pass(full):
    models = list(suite(("node", "simple", "pytorch-converted", "pytorch-operator")))
    wrong = {name: found for name, model in (models if full else every(8, models)) if (found := errors(model))}
    assert wrong == {}


TYPES = (FLOAT, HALF, INT, onnx.TensorProto.DOUBLE, onnx.TensorProto.BOOL, onnx.TensorProto.INT32)


def retyped_input(model, rng):
    value = rng.choice(model.graph.input)
    if value.type.HasField("tensor_type"):
        value.type.tensor_type.elem_type = rng.choice(TYPES)


def retyped_output(model, rng):
    value = rng.choice(model.graph.output)
    if value.type.HasField("tensor_type"):
        value.type.tensor_type.elem_type = rng.choice(TYPES)


def renamed_use(model, rng):
    node = rng.choice(model.graph.node)
    if node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(
            [value.name for value in model.graph.input] + ["nothing"]
        )


def same_output(model, rng):
    node = rng.choice(model.graph.node)
    if node.output:
        node.output[rng.randrange(len(node.output))] = rng.choice([value.name for value in model.graph.input])


def other_rank(model, rng):
    value = rng.choice(model.graph.input)
    if value.type.HasField("tensor_type"):
        value.type.tensor_type.shape.dim.add().dim_value = rng.choice([1, 2, 5])


UNCHECKED = frozenset({"BitCast", "DFT", "LabelEncoder", "LinearAttention", "OneHot", "Resize"})
"""Operators whose definitions compare lengths or attributes in ways that only running them does here."""
MUTATIONS = (retyped_input, retyped_output, renamed_use, same_output, other_rank)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_mutated_models_that_both_peers_refuse_are_refused(full, seed):
    rng = random.Random(seed)
    models = [(name, model) for name, model in suite(("node",)) if model.graph.input and model.graph.node]
    models = [
        (name, model) for name, model in models if UNCHECKED.isdisjoint(node.op_type for node in model.graph.node)
    ]
    passed, refused = [], 0
    for name, model in rng.sample(models, len(models) if full else 150):
        mutation = rng.choice(MUTATIONS)
        made = onnx.ModelProto()
        made.CopyFrom(model)
        mutation(made, rng)
        if (
            made == model
            or refused_by_onnxruntime(model)
            or not (refused_by_checker(made) and refused_by_onnxruntime(made))
        ):
            continue
        refused += 1
        if not errors(made):
            passed.append((name, mutation.__name__))
    assert refused >= 20
    assert passed == []
