"""``eval``: figures that NumPy and hand-made cases give, intervals that statistics give, pictures as Pillow prepares
them."""

import json

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.evaluate import dataset
from candle_convert.convert.evaluate.average_precision import average_precision, matches
from candle_convert.convert.evaluate.evaluate import evaluate
from candle_convert.convert.evaluate.metric import METRICS
from candle_convert.tests.builders.onnx_files import perceptron, save, value
from candle_convert.tests.builders.vision_language import vision_language_folder
from onnx import TensorProto, helper
from PIL import Image

RNG = np.random.default_rng(0)


def told(capsys, *words, code=0):
    assert run(["eval", *map(str, words), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def score(name, outputs, targets):
    metric = METRICS[name]
    return metric.combine(metric.score({"y": np.asarray(outputs)}, {"labels": np.asarray(targets)}))


def test_top_counts_classes_with_the_highest_scores():
    scores = RNG.normal(size=(200, 9))
    labels = RNG.integers(0, 9, 200)
    order = np.argsort(-scores, axis=1)
    assert score("top1", scores, labels) == pytest.approx((order[:, 0] == labels).mean())
    assert score("top5", scores, labels) == pytest.approx((order[:, :5] == labels[:, None]).any(axis=1).mean())
    assert score("top1", scores, np.eye(9)[labels]) == score("top1", scores, labels)
    pixels = RNG.normal(size=(4, 3, 5, 6))
    marks = RNG.integers(0, 3, (4, 5, 6))
    assert score("top1", pixels, marks) == pytest.approx((pixels.argmax(axis=1) == marks).mean())


@pytest.mark.parametrize(("label", "right"), [(0, 1.0), (1, 0.0), (2, 0.0)])
def test_the_first_of_equal_scores_is_the_answer_and_nan_is_none(label, right):
    assert score("top1", [[1.0, 1.0, 0.5]], [label]) == right
    assert score("top1", [[np.nan] * 3], [label]) == 0


def test_distances_are_numpys():
    found, right = RNG.normal(size=(2, 5, 3, 4))
    assert score("mse", found, right) == pytest.approx(((found - right) ** 2).mean())
    assert score("mae", found, right) == pytest.approx(np.abs(found - right).mean())
    flat = [(a.ravel(), b.ravel()) for a, b in zip(found, right, strict=True)]
    assert score("cosine", found, right) == pytest.approx(
        np.mean([a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in flat])
    )


def detected(found, right):
    """Average precision of pictures with boxes (x1, y1, x2, y2, score, label) found and (x1, y1, x2, y2, label)
    right."""
    contributions = []
    for boxes, truth in zip(found, right, strict=True):
        boxes, truth = np.array(boxes, float).reshape(1, -1, 6), np.array(truth, float).reshape(1, -1, 5)
        outputs = {"boxes": boxes[..., :4], "scores": boxes[..., 4], "labels": boxes[..., 5]}
        contributions += matches(outputs, {"boxes": truth[..., :4], "labels": truth[..., 4]})
    return average_precision(contributions), average_precision(contributions, thresholds=1)


A, B = (0, 0, 10, 10), (20, 20, 30, 40)
SHIFTED = (0, 0, 10, 8)
"""Overlaps A by 0.8: right for the seven thresholds up to 0.8."""
DETECTIONS = [
    ([[(*A, 0.9, 0), (*B, 0.8, 0)]], [[(*A, 0), (*B, 0)]], 1.0, 1.0),
    ([[(*A, 0.9, 0)]], [[(*A, 0), (*B, 0)]], 51 / 101, 51 / 101),
    ([[(*A, 0.9, 1)]], [[(*A, 0)]], 0.0, 0.0),
    ([[(*SHIFTED, 0.9, 0)]], [[(*A, 0)]], 0.7, 1.0),
    ([[(*A, 0.9, 0), (*A, 0.8, 0)]], [[(*A, 0)]], 1.0, 1.0),
    ([[(*B, 0.9, 0), (*A, 0.8, 0)]], [[(*A, 0)]], 0.5, 0.5),
    ([[(*A, 0.9, 0)], [(*A, 0.95, 0)]], [[(*A, 0)], [(*B, 0)]], 51 / 101 * 0.5, 51 / 101 * 0.5),
    ([[(*A, 0.9, 0)]], [[(*A, 0), (*B, 1)]], 0.5, 0.5),
    ([[(*A, 0.9, 0), (*B, 0.5, -1)]], [[(*A, 0), (*B, -1)]], 1.0, 1.0),
]


@pytest.mark.parametrize(("found", "right", "ap", "ap50"), DETECTIONS)
def test_average_precision(found, right, ap, ap50):
    assert detected(found, right) == pytest.approx((ap, ap50))


def test_figures_of_a_file_and_the_difference_of_two_models(tmp_path, capsys):
    first, second = perceptron(tmp_path / "a.onnx"), perceptron(tmp_path / "b.onnx", bias=0.75)
    x = RNG.normal(size=(101, 3)).astype(np.float32)
    one, other = (onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0] for path in (first, second))
    labels = one.argmax(axis=1)
    np.savez(tmp_path / "d.npz", x=x.astype(np.float64), labels=labels)
    found = told(capsys, first, "--data", tmp_path / "d.npz", "--metric", "top1", "--against", second)
    (row,) = found["metrics"]
    right = other.argmax(axis=1) == labels
    assert (found["samples"], row["value"]) == (101, 1.0)
    assert row["against"] == pytest.approx(right.mean())
    assert row["difference"] == pytest.approx(1 - right.mean())
    assert row["difference_low"] <= row["difference"] <= row["difference_high"]
    np.savez(tmp_path / "t.npz", x=x, y=other)
    row = told(capsys, first, "--data", tmp_path / "t.npz", "--metric", "mse", "--against", second, "--batch", "7")[
        "metrics"
    ][0]
    assert row["value"] == pytest.approx(((one - other) ** 2).mean(), rel=1e-4)
    assert row["against"] == pytest.approx(0, abs=1e-10)
    assert row["better"] is False
    assert told(capsys, first, "--data", tmp_path / "t.npz", "--metric", "mae", "--samples", "10")["samples"] == 10
    np.save(tmp_path / "y.npy", one)
    np.save(tmp_path / "x.npy", x)
    assert told(capsys, first, "--data", tmp_path / "x.npy", "--labels", tmp_path / "y.npy", "--metric", "cosine")[
        "metrics"
    ][0]["value"] == (pytest.approx(1, abs=1e-6))


def test_intervals_are_those_of_the_mean(tmp_path):
    x = RNG.normal(size=(400, 3)).astype(np.float32)
    perceptron(tmp_path / "a.onnx")
    y = onnxruntime.InferenceSession(str(tmp_path / "a.onnx")).run(None, {"x": x})[0]
    noise = RNG.normal(size=y.shape).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x, y=y + noise)
    graph = cc.open(tmp_path / "a.onnx")
    (figure,) = evaluate(graph, dataset.read(dataset.Source(str(tmp_path / "d.npz")), graph), [METRICS["mse"]])
    errors = (noise**2).mean(axis=1)
    half = 1.96 * errors.std() / np.sqrt(len(errors))
    assert (figure.low, figure.high) == pytest.approx((errors.mean() - half, errors.mean() + half), rel=0.05)


def test_a_fixed_batch_is_filled_and_only_samples_are_counted(tmp_path):
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("Relu", ["x"], ["y"])],
        [value("x", shape=(4, 2))],
        [value("y", shape=(4, 2))],
    )
    x = RNG.normal(size=(10, 2)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x, y=np.maximum(x, 0) + 1)
    graph = cc.open(model)
    (figure,) = evaluate(graph, dataset.read(dataset.Source(str(tmp_path / "d.npz")), graph), [METRICS["mae"]])
    assert (figure.samples, figure.value) == (10, pytest.approx(1))


@pytest.mark.parametrize(("layout", "order"), [("nchw", "rgb"), ("nhwc", "bgr")])
def test_pictures_in_folders_of_classes(tmp_path, capsys, layout, order):
    """The model gives the mean of each channel: the class is the brightest one."""
    shape = (1, 3, 8, 6) if layout == "nchw" else (1, 8, 6, 3)
    axes = [2, 3] if layout == "nchw" else [1, 2]
    nodes = [helper.make_node("ReduceMean", ["x"], ["y"], axes=axes, keepdims=0)]
    model = save(tmp_path / "m.onnx", nodes, [value("x", shape=shape)], [value("y", shape=(1, 3))])
    for number, name in enumerate(["red", "green", "blue"]):
        (tmp_path / "data" / name).mkdir(parents=True)
        for index in range(3):
            pixels = RNG.integers(0, 100, (20 + index, 30, 3), np.uint8)
            pixels[..., number] += 100
            Image.fromarray(pixels).save(tmp_path / "data" / name / f"{index}.png")
    names = ["red", "green", "blue"] if order == "rgb" else ["blue", "green", "red"]
    (tmp_path / "classes.txt").write_text("\n".join(names))
    options = [
        "--classes",
        tmp_path / "classes.txt",
        "--order",
        order,
        "--resize",
        "10",
        "--mean",
        "0.4,0.4,0.4",
        "--std",
        "0.2",
    ]
    found = told(capsys, model, "--data", tmp_path / "data", *options)
    assert (found["samples"], found["metrics"][0]["value"]) == (9, 1.0)
    # blue, green, red
    by_name = told(capsys, model, "--data", tmp_path / "data", "--order", order)["metrics"][0]["value"]
    assert (by_name == 1) == (order == "bgr")


def test_pictures_are_prepared_as_pillow_does(tmp_path):
    from candle_convert.convert.run.image_preprocess import Camera, Look

    pixels = RNG.integers(0, 256, (40, 30, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "p.png")
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("Relu", ["x"], ["y"])],
        [value("x", shape=(1, 3, 8, 8))],
        [value("y", shape=(1, 3, 8, 8))],
    )
    camera = Camera(cc.open(model).inputs[0], Look(resize=15, mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.3)))
    wide = Image.fromarray(pixels).resize((15, 20), Image.Resampling.BILINEAR).crop((3, 6, 11, 14))
    expected = (np.asarray(wide) / 255 - [0.5, 0.4, 0.3]) / [0.1, 0.2, 0.3]
    np.testing.assert_allclose(camera.shot(tmp_path / "p.png"), expected.transpose(2, 0, 1), rtol=1e-5, atol=1e-5)


def test_a_metric_of_ones_own(tmp_path, capsys):
    model, mine = perceptron(tmp_path / "m.onnx"), tmp_path / "largest.py"
    mine.write_text("def metric(outputs, targets):\n    return abs(outputs['y'] - targets['y']).max(axis=1)\n")
    x = RNG.normal(size=(6, 3)).astype(np.float32)
    y = onnxruntime.InferenceSession(str(model)).run(None, {"x": x})[0]
    np.savez(tmp_path / "d.npz", x=x, y=y + 2)
    row = told(capsys, model, "--data", tmp_path / "d.npz", "--metric", mine)["metrics"][0]
    assert (row["metric"], row["value"], row["better"]) == ("largest", pytest.approx(2, rel=1e-5), None)


def data(folder, **arrays):
    np.savez(folder / "d.npz", **arrays)
    return folder / "d.npz"


X = np.ones((4, 3), np.float32)
REFUSED = [
    ({"x": X}, ["--metric", "top1"], "E-EVAL-TARGET"),
    ({"x": X, "labels": np.array([0, 1, 2, 0])}, [], "E-EVAL-LABEL"),
    ({"x": X, "labels": np.array([0, 1])}, [], "E-EVAL-DATA"),
    ({"x": X, "y": np.zeros((4, 3))}, ["--metric", "mse"], "E-EVAL-SHAPE"),
    ({"labels": np.zeros(4, int)}, [], "E-EVAL-DATA"),
    ({"x": X, "labels": np.zeros(4, int)}, ["--metric", "ppl"], "E-ONNX-TASK"),
    ({"x": X, "labels": np.zeros(4, int)}, ["--metric", "nothing"], "E-EVAL-METRIC"),
    ({"x": X, "labels": np.zeros(4, int)}, ["--metric", "nothing.py"], "E-EVAL-METRIC"),
    ({"x": X, "labels": np.zeros(4, int)}, ["--value", "z"], "E-RUN-OUTPUT"),
    ({"x": X, "labels": np.zeros(4, int)}, ["--metric", "map"], "E-EVAL-TARGET"),
    ({"x": X.astype(int), "labels": np.zeros(4, int)}, [], "E-RUN-DTYPE"),
    ({"x": X[:0], "labels": np.zeros(0, int)}, [], "E-EVAL-DATA"),
]


@pytest.mark.parametrize(("arrays", "options", "code"), REFUSED)
def test_data_that_does_not_fit_is_refused(tmp_path, capsys, arrays, options, code):
    model = perceptron(tmp_path / "m.onnx")
    assert told(capsys, model, "--data", data(tmp_path, **arrays), *options, code=2)["error"]["code"] == code


def test_folders_without_data_are_refused(tmp_path, capsys):
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("Relu", ["x"], ["y"])],
        [value("x", TensorProto.FLOAT, (1, 3, "h", "w"))],
        [value("y", shape=(1, 3, "h", "w"))],
    )
    (tmp_path / "empty").mkdir()
    assert told(capsys, model, "--data", tmp_path / "empty", code=2)["error"]["code"] == "E-EVAL-DATA"
    assert told(capsys, model, "--data", tmp_path / "missing", code=7)["error"]["code"] == "E-IO-MISSING"
    (tmp_path / "d" / "one").mkdir(parents=True)
    (tmp_path / "d" / "one" / "p.png").write_bytes(b"no picture")
    assert told(capsys, model, "--data", tmp_path / "d", code=2)["error"]["code"] == "E-EVAL-SIZE"
    assert told(capsys, model, "--data", tmp_path / "d", "--size", "8x8", code=3)["error"]["code"] == "E-EVAL-PICTURE"


@pytest.mark.parametrize("family", ["gemma3", "mistral3"])
def test_models_that_see_are_scored_on_texts(tmp_path, capsys, family):
    folder = tmp_path / family
    folder.mkdir()
    vision_language_folder(family, folder)
    error = told(capsys, folder, "-d", data(tmp_path, x=X), code=2)["error"]
    assert error["code"] == "E-EVAL-METRIC"
    assert error["hint"].endswith("--metric ppl")


def test_weights_of_no_model_are_exported_first(tmp_path, capsys):
    cc.save_file({"w": X}, tmp_path / "m.safetensors")
    error = told(capsys, tmp_path / "m.safetensors", "-d", data(tmp_path, x=X), code=2)["error"]
    assert error["code"] == "E-RUN-NODES"
    assert error["hint"].startswith("Export it first: candle-convert convert ")
