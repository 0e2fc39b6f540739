"""``run``, ``ops`` and ``bench``: inputs from the command line, outputs against onnxruntime, what is missing."""

import importlib.util
import json

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.onnx_files import perceptron, save, value
from onnx import TensorProto, helper


def expected(path, feeds):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)


def command(capsys, *words):
    code = run([*map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_outputs_are_onnxruntimes(tmp_path, capsys):
    model, out = perceptron(tmp_path / "m.onnx"), tmp_path / "y.npz"
    x = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "all.npz", x=x)
    for given in (f"x={tmp_path / 'x.npy'}", str(tmp_path / "all.npz"), f"x={tmp_path / 'all.npz'}:x"):
        code, told = command(capsys, "run", model, "--input", given, "--output", out, "--force")
        assert code == 0
        assert told["values"][0]["shape"] == [5, 2]
        np.testing.assert_allclose(cc.load_file(out)["y"], expected(model, {"x": x})[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        ((), [1, 2]),
        (("--dim", "batch=4"), [4, 2]),
        (("--input", "x=7x3"), [7, 2]),
        (("--input", "x=zeros", "--dim", "batch=2"), [2, 2]),
    ],
)
def test_inputs_that_are_made_up(tmp_path, capsys, words, shape):
    code, told = command(capsys, "run", perceptron(tmp_path / "m.onnx"), *words)
    assert (code, told["values"][0]["shape"]) == (0, shape)


def test_made_up_inputs_are_the_same_every_time(tmp_path, capsys):
    model = perceptron(tmp_path / "m.onnx")
    first, again, other = (command(capsys, "run", model, "--seed", seed)[1]["values"] for seed in (3, 3, 4))
    assert first == again != other


def test_taps_show_intermediate_values(tmp_path, capsys):
    model = perceptron(tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.ones((1, 3), np.float32))
    code, told = command(capsys, "run", model, "--input", f"x={tmp_path / 'x.npy'}", "--taps", "hidden|sum")
    assert code == 0
    assert [row["name"] for row in told["values"]] == ["sum", "hidden", "y"]


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("--input", "z=random"), 2, "E-RUN-INPUT"),
        (("--input", "x=1x2x3"), 2, "E-RUN-SHAPE"),
        (("--input", "x"), 2, "E-OPTION"),
        (("--input", "x=missing.npy"), 7, "E-IO-MISSING"),
        (("--input", "x=100000000000x3"), 6, "E-RUN-MEMORY"),
        (("--dim", "batch=x"), 2, "E-OPTION"),
        (("--dim", "batch_size=4"), 2, "E-GRAPH-DIM"),
    ],
)
def test_inputs_that_are_refused(tmp_path, capsys, words, code, error):
    found, told = command(capsys, "run", perceptron(tmp_path / "m.onnx"), *words)
    assert (found, told["error"]["code"]) == (code, error)


@pytest.mark.parametrize("words", [("bench", "--runs", "1"), ("profile",), ("cache", "warm")])
def test_unknown_dimensions_are_refused(tmp_path, capsys, words):
    """A name that no input has was ignored, and another length measured."""
    found, told = command(capsys, *words, perceptron(tmp_path / "m.onnx"), "--dim", "batch_size=4")
    assert (found, told["error"]["code"], "batch" in told["error"]["hint"]) == (2, "E-GRAPH-DIM", True)


def test_another_dtype_is_refused_with_the_way_out(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.ones((1, 3)))
    code, told = command(capsys, "run", perceptron(tmp_path / "m.onnx"), "--input", f"x={tmp_path / 'x.npy'}")
    assert (code, told["error"]["code"]) == (2, "E-RUN-DTYPE")
    assert "--dtype f32" in told["error"]["hint"]


def test_weights_alone_are_not_run(tmp_path, capsys):
    cc.save_file({"w": np.ones(3, np.float32)}, tmp_path / "w.safetensors")
    code, told = command(capsys, "run", tmp_path / "w.safetensors")
    assert (code, told["error"]["code"]) == (2, "E-RUN-NODES")


def test_ops_lists_all_that_is_missing_before_anything_runs(tmp_path, capsys):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Swirl", ["a"], ["b"], domain="far.away"),
        helper.make_node("Softmux", ["b"], ["c"]),
        helper.make_node("Swirl", ["c"], ["y"], domain="far.away"),
    ]
    model = save(tmp_path / "m.onnx", nodes, [value("x")], [value("y")], domains=["far.away"])
    code, told = command(capsys, "ops", model)
    assert code == 1
    assert [(row["op"], row["domain"], row["nodes"]) for row in told["missing"]] == [
        ("Softmux", "ai.onnx", 1),
        ("Swirl", "far.away", 2),
    ]
    assert told["ops"] == [{"op": "Relu", "domain": "ai.onnx", "nodes": 1}]
    code, told = command(capsys, "run", model)
    assert code == 4
    assert "far.away.Swirl" in told["error"]["message"]
    assert "Softmux" in told["error"]["message"]


def test_ops_of_a_model_that_runs(tmp_path, capsys):
    code, told = command(capsys, "ops", perceptron(tmp_path / "m.onnx"))
    assert (code, told["missing"]) == (0, [])
    assert {row["op"]: row["nodes"] for row in told["ops"]} == {"MatMul": 2, "Add": 1, "Relu": 1}


def test_ops_counts_inside_functions_and_branches(tmp_path, capsys):
    inner = helper.make_graph([helper.make_node("Exp", ["x"], ["e"])], "inner", [], [value("e")])
    function = helper.make_function(
        "mine", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    nodes = [
        helper.make_node("If", ["choice"], ["z"], then_branch=inner, else_branch=inner),
        helper.make_node("Twice", ["z"], ["y"], domain="mine"),
    ]
    inputs = [value("choice", TensorProto.BOOL, ()), value("x")]
    model = save(tmp_path / "m.onnx", nodes, inputs, [value("y")], domains=["mine"], functions=[function])
    code, told = command(capsys, "ops", model)
    assert code == 0
    assert {row["op"]: row["nodes"] for row in told["ops"]} == {"If": 1, "Exp": 2, "Add": 1}


def test_ops_lists_every_operator(capsys):
    code, told = command(capsys, "ops", "--domain", "ai.onnx")
    assert code == 0
    names = {row["op"] for row in told["ops"]}
    assert {"Conv", "Attention", "Loop", "Softmax"} <= names


def test_bench_measures_each_engine_once(tmp_path, capsys):
    peers = ("--against", "onnxruntime", "--against", "onnxruntime")
    options = (*peers, "--runs", "3", "--warmup", "1", "--threads", "1")
    code, told = command(capsys, "bench", perceptron(tmp_path / "m.onnx"), *options)
    assert code == 0
    assert [engine["engine"] for engine in told["engines"]] == ["candle-convert", "onnxruntime"]
    assert all(
        len(engine["seconds"]) == 3 and engine["peak"] > 1e6 and engine["median"] > 0 for engine in told["engines"]
    )


def test_bench_against_openvino_or_its_install_command(tmp_path, capsys):
    code, told = command(capsys, "bench", perceptron(tmp_path / "m.onnx"), "--against", "openvino", "--runs", "1")
    if importlib.util.find_spec("openvino") is None:
        assert (code, told["error"]["hint"]) == (4, "pip install openvino")
    else:
        assert [engine["engine"] for engine in told["engines"]] == ["candle-convert", "openvino"]
