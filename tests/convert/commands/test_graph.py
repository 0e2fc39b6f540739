"""``graph``: files that onnxruntime computes the same from; the smallest part that fails."""

import json
import shlex
import sys

import candle_convert as cc
import numpy as np
import onnx
import onnxruntime
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.run.compare_outputs import compare, first_difference, outputs
from candle_convert.convert.run.reduce_graph import reduce
from candle_convert.tests.builders.onnx_files import perceptron, save, value, weight
from onnx import helper

X = np.random.default_rng(3).normal(size=(4, 3)).astype(np.float32)


def outcome(path, feeds=None):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds or {"x": X})


def graph(capsys, *words, code=0):
    assert run(["graph", *map(str, words), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_simplify(tmp_path, capsys):
    model, out = perceptron(tmp_path / "m.onnx"), tmp_path / "out.onnx"
    graph(capsys, "simplify", model, out)
    onnx.checker.check_model(str(out), full_check=True)
    assert [node.op_type for node in onnx.load(out).graph.node] == ["Gemm", "Relu", "MatMul"]
    np.testing.assert_allclose(outcome(out)[0], outcome(model)[0], rtol=1e-5)
    graph(capsys, "simplify", model, out, "--skip", "bias", "--force")
    assert len(onnx.load(out).graph.node) == 4
    assert graph(capsys, "simplify", model, out, "--skip", "magic", code=2)["error"]["code"] == "E-OPTION"


@pytest.mark.parametrize("opset", [17, 21, 23])
def test_opset(tmp_path, capsys, opset):
    model, out = perceptron(tmp_path / "m.onnx"), tmp_path / "out.onnx"
    graph(capsys, "opset", model, out, "--opset", opset)
    assert onnx.load(out).opset_import[0].version == opset
    np.testing.assert_array_equal(outcome(out)[0], outcome(model)[0])


def test_extract(tmp_path, capsys):
    model, out = perceptron(tmp_path / "m.onnx"), tmp_path / "out.onnx"
    graph(capsys, "extract", model, out, "--inputs", "sum", "--outputs", "y")
    total = np.random.default_rng(4).normal(size=(2, 8)).astype(np.float32)
    weights = cc.load_file(model)
    np.testing.assert_allclose(
        outcome(out, {"sum": total})[0], np.maximum(total, 0) @ weights["v"], rtol=1e-4, atol=1e-5
    )
    assert graph(capsys, "extract", model, out, "--outputs", "z", "--force", code=2)["error"]["code"] == "E-GRAPH-VALUE"


def test_extract_at_one_of_several_outputs(tmp_path, capsys):
    """The node still computes the other one, and what was cut is no longer its result."""
    model, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2),
        helper.make_node("Neg", ["a"], ["c"]),
        helper.make_node("Neg", ["c"], ["d"]),
        helper.make_node("Sub", ["d", "b"], ["y"]),
    ]
    infos = [helper.make_tensor_value_info(name, 1, [2, None]) for name in "xy"]
    made = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), model)
    graph(capsys, "extract", model, out, "--inputs", "a", "--inputs", "c", "--outputs", "y", "--outputs", "a")
    onnx.checker.check_model(onnx.load(out), full_check=True)
    x, c, a = (
        np.random.default_rng(seed).normal(size=(2, size)).astype(np.float32) for seed, size in enumerate((8, 4, 4))
    )
    np.testing.assert_array_equal(outcome(out, {"x": x, "c": c, "a": a})[0], -c - x[:, 4:])
    cc.onnx.read(model).extract(["y"], ["c"]).simplify().save(out)
    np.testing.assert_array_equal(outcome(out, {"x": x, "c": c})[0], -c - x[:, 4:])


def test_shapes(tmp_path, capsys):
    model, out = perceptron(tmp_path / "m.onnx"), tmp_path / "out.onnx"
    graph(capsys, "shapes", model, out, "--dim", "batch=4")
    found = {
        item.name: [dim.dim_value for dim in item.type.tensor_type.shape.dim]
        for item in onnx.load(out).graph.value_info
    }
    assert found["hidden"] == [4, 8]
    assert found["product"] == [4, 8]
    np.testing.assert_array_equal(outcome(out)[0], outcome(model)[0])


def test_rename(tmp_path, capsys):
    model, out = perceptron(tmp_path / "m.onnx"), tmp_path / "out.onnx"
    graph(capsys, "rename", model, out, "--value", "x=image", "--value", "y=scores", "--dim", "batch=n")
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    assert [item.name for item in session.get_inputs()] == ["image"]
    assert session.get_inputs()[0].shape == ["n", 3]
    np.testing.assert_array_equal(session.run(["scores"], {"image": X})[0], outcome(model)[0])


def test_weights_alone_have_no_graph(tmp_path, capsys):
    cc.save_file({"w": X}, tmp_path / "w.safetensors")
    assert (
        graph(capsys, "simplify", tmp_path / "w.safetensors", tmp_path / "o.onnx", code=2)["error"]["code"]
        == "E-RUN-NODES"
    )


def chain(path, names, inputs=("x",)):
    nodes = [
        helper.make_node(name, [before], [after], after)
        for name, before, after in zip(names, [inputs[0], *"abcdefg"], "abcdefg", strict=False)
    ]
    return save(path, nodes, [value("x")], [value("abcdefg"[len(names) - 1], shape=None)])


def test_a_command_decides_what_fails(tmp_path, capsys):
    model, out = chain(tmp_path / "m.onnx", ["Exp", "Neg", "Sin", "Abs", "Cos"]), tmp_path / "out.onnx"
    script = tmp_path / "check.py"
    script.write_text(
        "import onnx, sys\nsys.exit(any(node.op_type == 'Sin' for node in onnx.load(sys.argv[1]).graph.node))\n"
    )
    graph(capsys, "reduce", model, out, "--fails", shlex.join([sys.executable, str(script), "{}"]))
    assert [node.op_type for node in onnx.load(out).graph.node] == ["Sin"]


def test_a_command_that_does_not_end_fails(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("candle_convert.convert.run.failure_test.TIMEOUT", 0.2)
    model, out = chain(tmp_path / "m.onnx", ["Exp", "Neg"]), tmp_path / "out.onnx"
    graph(
        capsys,
        "reduce",
        model,
        out,
        "--fails",
        shlex.join([sys.executable, "-c", "import time\nwhile True: time.sleep(9)", "{}"]),
    )
    assert len(onnx.load(out).graph.node) == 1


@pytest.mark.parametrize("command", ["there-is-no-such-command {}", "'check {}", " "])
def test_what_is_no_command_is_told(command, tmp_path, capsys):
    model = chain(tmp_path / "m.onnx", ["Exp"])
    assert (
        graph(capsys, "reduce", model, tmp_path / "out.onnx", "--fails", command, code=2)["error"]["code"]
        == "E-GRAPH-COMMAND"
    )


def test_a_model_that_agrees_with_onnxruntime_does_not_fail(tmp_path, capsys):
    told = graph(capsys, "reduce", perceptron(tmp_path / "m.onnx"), tmp_path / "out.onnx", code=2)
    assert told["error"]["code"] == "E-GRAPH-WORKS"


def test_reducing_asks_about_few_parts(tmp_path):
    asked = []

    def fails(part):
        asked.append(part)
        return any(node.op.name == "Sin" for node in part.nodes)

    made = reduce(
        cc.open(chain(tmp_path / "m.onnx", ["Exp", "Neg", "Sin", "Abs", "Cos", "Tan"])), fails, lambda line: None
    )
    assert [node.op.name for node in made.nodes] == ["Sin"]
    assert len(asked) <= 8


def test_comparison_is_numpys(tmp_path):
    one = np.array([1.0, -2.0, np.nan, np.inf], np.float32)
    assert compare("v", one, one.copy(), 0, 0).same
    assert not compare("v", one, np.array([1.0, -2.0, 0.0, np.inf], np.float32), 1, 1).same
    found = compare("v", np.array([3.0, 4.0]), np.array([3.0, 4.5]), 0.2, 0)
    assert (found.max_abs, found.max_rel, found.same) == (0.5, 0.125, True)
    assert found.snr_db == pytest.approx(20)
    assert not compare("v", np.zeros(2), np.zeros(3), 1, 1).same


def test_two_models_side_by_side(tmp_path):
    first, second = cc.open(perceptron(tmp_path / "a.onnx")), cc.open(perceptron(tmp_path / "b.onnx", bias=0.75))
    (row,) = outputs(first, second, {"x": X}, rtol=1e-4, atol=1e-6)
    expected = np.abs(outcome(tmp_path / "a.onnx")[0] - outcome(tmp_path / "b.onnx")[0]).max()
    assert row.max_abs == pytest.approx(expected, rel=1e-4)
    assert not row.same
    assert first_difference(first, second, {"x": X}, rtol=1e-4, atol=1e-6).name == "sum"
    assert first_difference(first, cc.open(tmp_path / "a.onnx"), {"x": X}, rtol=1e-4, atol=1e-6) is None


def test_verify_runs_networks(tmp_path, capsys):
    first, second, out = (
        perceptron(tmp_path / "a.onnx"),
        perceptron(tmp_path / "b.onnx", bias=0.75),
        tmp_path / "out.onnx",
    )
    np.save(tmp_path / "x.npy", X)
    graph(capsys, "simplify", first, out)
    assert run(["verify", str(first), str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["same"] for row in told["outputs"]] == [True]
    assert run(["verify", str(first), str(second), "--input", f"x={tmp_path / 'x.npy'}", "--nodes", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["first_difference"]["name"] == "sum"
    assert not told["ok"]


def test_shape_of_weights_stays(tmp_path, capsys):
    nodes = [helper.make_node("Add", ["x", "b"], ["y"])]
    model = save(tmp_path / "m.onnx", nodes, [value("x")], [value("y")], [weight("b", np.float32(2))])
    graph(capsys, "simplify", model, tmp_path / "o.onnx")
    np.testing.assert_array_equal(outcome(tmp_path / "o.onnx")[0], X + 2)
