"""Images as samples of calibration: a folder of them, or of folders of them, as `eval` reads them."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from candle_convert.convert.cli.main import run
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
LOOK = ["--mean", "0.4,0.5,0.6", "--std", "0.2,0.25,0.3"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    for batch in ("n", 2):
        graph = helper.make_graph(
            [helper.make_node("Conv", ["x", "w"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 8, 8])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4, 6, 6])],
            [numpy_helper.from_array(weight, "w")],
        )
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), f"conv-{batch}.onnx"
        )
    for label in ("a", "b", "."):
        (tmp_path / "images" / label).mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / label / "1.png")
    return tmp_path


def prepared(folder):
    """The images as NumPy prepares them."""
    paths = sorted((folder / "images").rglob("*.png"))
    pixels = [np.asarray(Image.open(path), np.float32) / 255 for path in paths]
    return [((each - np.float32(MEAN)) / np.float32(STD)).transpose(2, 0, 1) for each in pixels]


@pytest.mark.parametrize("batch", ["n", 2])
def test_ranges_are_those_of_the_prepared_images(folder, capsys, batch):
    assert run(["calibrate", f"conv-{batch}.onnx", "-d", "images", "-o", "r.json", *LOOK, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == (3 if batch == "n" else 2)
    found = json.loads((folder / "r.json").read_text())["values"]
    session = onnxruntime.InferenceSession("conv-n.onnx", providers=["CPUExecutionProvider"])
    images = prepared(folder)
    outputs = [session.run(None, {"x": image[None]})[0] for image in images]
    for name, arrays in (("x", images), ("y", outputs)):
        assert found[name]["low"] == pytest.approx(min(array.min() for array in arrays), rel=1e-4)
        assert found[name]["high"] == pytest.approx(max(array.max() for array in arrays), rel=1e-4)


def test_quantize_takes_the_folder(folder, capsys):
    assert run(["quantize", "conv-n.onnx", "q.onnx", "int8", "--reduce-range", "--calib", "images", *LOOK]) == 0
    assert "QuantizeLinear" in {node.op_type for node in onnx.load("q.onnx").graph.node}
    images = np.stack(prepared(folder))
    plain, quantized = (
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": images})[0]
        for path in ("conv-n.onnx", "q.onnx")
    )
    noise = np.square(plain - quantized).sum()
    assert 10 * np.log10(np.square(plain).sum() / noise) > 25


def test_a_network_of_two_inputs_takes_no_images(folder, capsys):
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "z"], ["y"])],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, 8, 8]) for name in "xz"],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 8, 8])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "add.onnx")
    assert run(["calibrate", "add.onnx", "-d", "images", "-o", "r.json"]) == 2
    assert "contains images, but the model has 2 inputs" in capsys.readouterr().err
