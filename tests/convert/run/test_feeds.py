"""Made-up inputs: lengths that the model takes, by name, layout and shape inference; onnxruntime is the oracle."""

import json

import candle_convert as cc
import numpy as np
import onnx
import onnxruntime
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.run.feeds import example, feeds
from candle_convert.runtime.base.errors import UsageError
from candle_convert.tests.builders import tiny_llama

make = onnx.helper


def saved(path, nodes, inputs, weights=(), opset=18):
    """A model with the outputs of its last node."""
    graph = make.make_graph(
        nodes,
        "g",
        [make.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs],
        [make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in nodes[-1].output],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights],
    )
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", opset)], ir_version=9), path)
    return path


def weight(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def detector(path, layout=("batch", 3, "p", "q")):
    """A picture halved five times and doubled again, which is joined with what was there before."""
    nodes, last, kept = [], "x", []
    for level in range(5):
        nodes.append(make.make_node("Conv", [last, f"w{level}"], [f"d{level}"], strides=[2, 2], pads=[1] * 4))
        last, kept = f"d{level}", [*kept, f"d{level}"]
    for level in reversed(range(4)):
        nodes.append(make.make_node("Resize", [last, "", "scales"], [f"u{level}"], mode="nearest"))
        nodes.append(make.make_node("Add", [f"u{level}", kept[level]], [f"s{level}"]))
        last = f"s{level}"
    weights = [(f"w{level}", weight(3, 3, 3, 3)) for level in range(5)]
    return saved(path, nodes, [("x", 1, layout)], [*weights, ("scales", np.float32([1, 1, 2, 2]))])


def attention_of_latents(path):
    """Every position of a map sees all others: memory is the square of their number."""
    nodes = [
        make.make_node("Reshape", ["x", "flat"], ["f"]),
        make.make_node("Transpose", ["f"], ["t"], perm=[0, 2, 1]),
        make.make_node("MatMul", ["t", "f"], ["m"]),
        make.make_node("ReduceMean", ["m"], ["y"], keepdims=0),
    ]
    return saved(path, nodes, [("x", 1, ["batch", 4, "height", "width"])], [("flat", np.array([0, 4, -1]))])


def recognizer(path):
    """A line of text: 48 rows become 3, and these one; a sequence remains."""
    nodes = [
        make.make_node("AveragePool", ["x"], ["p"], kernel_shape=[16, 8], strides=[16, 8]),
        make.make_node("AveragePool", ["p"], ["q"], kernel_shape=[3, 1]),
        make.make_node("Squeeze", ["q", "two"], ["s"]),
        make.make_node("Transpose", ["s"], ["t"], perm=[0, 2, 1]),
        make.make_node("MatMul", ["t", "w"], ["y"]),
    ]
    return saved(path, nodes, [("x", 1, [None, 3, None, None])], [("two", np.array([2])), ("w", weight(3, 5))])


def voice(path):
    """Frames of 256 samples behind a condition on the sampling rate."""

    def branch(name, stride):
        nodes = [make.make_node("Conv", ["row", "frames"], [f"{name}_c"], strides=[stride])]
        nodes.append(make.make_node("ReduceMean", [f"{name}_c", "axis"], [f"{name}_y"], keepdims=0))
        return make.make_graph(nodes, name, [], [make.make_tensor_value_info(f"{name}_y", 1, None)])

    nodes = [
        make.make_node("Equal", ["sr", "rate"], ["fast"]),
        make.make_node("Unsqueeze", ["input", "one"], ["row"]),
        make.make_node("If", ["fast"], ["m"], then_branch=branch("then", 128), else_branch=branch("else", 64)),
        make.make_node("Gather", ["state", "none"], ["h"], axis=0),
        make.make_node("Add", ["m", "h"], ["y"]),
    ]
    weights = [
        ("rate", np.array(16000)),
        ("one", np.array([1])),
        ("axis", np.array([2])),
        ("frames", weight(8, 1, 256)),
    ]
    inputs = [("input", 1, [None, None]), ("state", 1, [2, None, 8]), ("sr", 7, [])]
    return saved(path, nodes, inputs, [*weights, ("none", np.array(0))])


def embedder(path):
    """Token ids for a table, their types for another one, a mask, and lengths."""
    nodes = [
        make.make_node("Cast", ["input_ids"], ["ids"], to=7),
        make.make_node("Gather", ["words", "ids"], ["a"]),
        make.make_node("Gather", ["types", "token_type_ids"], ["b"]),
        make.make_node("Gather", ["places", "position_ids"], ["c"]),
        make.make_node("Sum", ["a", "b", "c"], ["s"]),
        make.make_node("Cast", ["attention_mask"], ["m"], to=1),
        make.make_node("Unsqueeze", ["m", "last"], ["mask"]),
        make.make_node("Mul", ["s", "mask"], ["y"]),
    ]
    inputs = [
        (name, 6 if name == "input_ids" else 7, ["batch", "seq"])
        for name in ("input_ids", "token_type_ids", "position_ids", "attention_mask")
    ]
    weights = [("words", weight(50, 4)), ("types", weight(1, 4)), ("places", weight(64, 4)), ("last", np.array([2]))]
    return saved(path, nodes, inputs, weights)


def products(path):
    """A length that only 576 fits, in two inputs of one symbol."""
    nodes = [
        make.make_node("MatMul", ["a", "w"], ["x"]),
        make.make_node("MatMul", ["b", "w"], ["z"]),
        make.make_node("Add", ["x", "z"], ["y"]),
    ]
    return saved(path, nodes, [("a", 1, ["batch", "samples"]), ("b", 1, ["batch", "samples"])], [("w", weight(576, 2))])


MODELS = {
    "detector": detector, "recognizer": recognizer, "voice": voice, "embedder": embedder, "products": products,
    "latents": attention_of_latents,
}  # fmt: skip
NHWC = ("n", "h", "w", 3)


@pytest.mark.parametrize("name", list(MODELS))
def test_onnxruntime_takes_what_is_made_up(name, tmp_path):
    path = MODELS[name](tmp_path / "m.onnx")
    fed, told = feeds(cc.open(path), ())
    found = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, fed)
    assert all(np.isfinite(array).all() for array in found)
    assert len(told) == len(fed)


@pytest.mark.parametrize("name", list(MODELS))
def test_every_command_runs(name, tmp_path):
    path = str(MODELS[name](tmp_path / "m.onnx"))
    assert run(["run", path, "-q"]) == 0
    assert run(["profile", path, "--runs", "1", "--warmup", "0", "-q"]) == 0
    assert run(["bench", path, "--runs", "1", "--warmup", "0", "-q"]) == 0
    assert run(["verify", path, path, "-q"]) == 0


def test_shapes_that_are_given_decide_the_others(tmp_path):
    fed, _ = feeds(cc.open(voice(tmp_path / "v.onnx")), ["input=3x600"])
    assert (fed["input"].shape, fed["state"].shape, int(fed["sr"])) == ((3, 600), (2, 3, 8), 16000)
    fed, _ = feeds(cc.open(embedder(tmp_path / "e.onnx")), ["input_ids=2x7"])
    assert {array.shape for array in fed.values()} == {(2, 7)}
    assert fed["attention_mask"].all()
    assert fed["input_ids"].max() > 1
    assert not fed["token_type_ids"].any(), "the table has one row"
    assert fed["position_ids"].tolist() == [list(range(7))] * 2
    fed, _ = feeds(cc.open(detector(tmp_path / "d.onnx")), (), lengths={"p": 64})
    assert fed["x"].shape == (1, 3, 64, 224)


@pytest.mark.parametrize("command", ["run", "bench", "profile", "verify"])
def test_shapes_on_the_command_line_and_a_hint_that_names_one(command, tmp_path, capsys):
    path = str(recognizer(tmp_path / "m.onnx"))
    words = [
        command,
        path,
        *([path] if command == "verify" else []),
        *(["--runs", "1"] if command in ("bench", "profile") else []),
    ]
    assert run([*words, "--input", "x=2x3x48x100", "-q"]) == 0
    assert run([*words, "--input", "x=1x3x32x100", "--json"]) in (2, 3)
    error = json.loads(capsys.readouterr().out)["error"]
    assert "--input x=1x3x48x320" in error["hint"]


def test_a_model_that_nothing_fits_says_how_to_give_shapes(tmp_path, capsys):
    nodes = [make.make_node("MatMul", ["x", "w"], ["y"])]
    path = saved(tmp_path / "m.onnx", nodes, [("x", 1, ["n", "odd"])], [("w", weight(577, 2))])
    assert run(["run", str(path), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "E-RUN-SHAPE"
    assert "--input x=1x512" in error["hint"]
    assert run(["run", str(path), "--input", "x=4x577", "-q"]) == 0
    assert run(["run", str(path), "--dim", "odd=577", "-q"]) == 0


def test_language_models_get_consistent_lengths(tmp_path):
    cc.convert(tiny_llama.written(tmp_path / "m.gguf"), tmp_path / "m", to="onnx")
    graph = cc.open(tmp_path / "m" / "model.onnx")
    for texts in ((), ["input_ids=2x5"], ["past_key_values.0.key=2x4x3x16", "input_ids=2x5"]):
        fed, _ = feeds(graph, texts)
        batch, length = fed["input_ids"].shape
        past = fed["past_key_values.1.value"].shape[2]
        assert fed["attention_mask"].shape == (batch, past + length)
        session = onnxruntime.InferenceSession(str(tmp_path / "m" / "model.onnx"), providers=["CPUExecutionProvider"])
        assert session.run(["logits"], fed)[0].shape[:2] == (batch, length)
    assert example(graph).startswith("--input input_ids=")


def test_latents_are_smaller_than_pictures(tmp_path):
    fed, _ = feeds(cc.open(attention_of_latents(tmp_path / "a.onnx")), ())
    assert fed["x"].shape == (1, 4, 64, 64)


def test_channels_last(tmp_path):
    nodes = [
        make.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        make.make_node("Conv", ["t", "w"], ["y"], strides=[2, 2]),
    ]
    path = saved(tmp_path / "m.onnx", nodes, [("x", 1, NHWC)], [("w", weight(4, 3, 7, 7))])
    fed, _ = feeds(cc.open(path), ())
    assert fed["x"].shape == (1, 224, 224, 3)


def test_an_input_without_a_rank_is_refused(tmp_path):
    path = saved(tmp_path / "m.onnx", [make.make_node("Relu", ["x"], ["y"])], [("x", 1, None)])
    with pytest.raises(UsageError, match="E-RUN-SHAPE"):
        feeds(cc.open(path), ())
    assert feeds(cc.open(path), ["x=2x3"])[0]["x"].shape == (2, 3)
