"""YOLO v8 against torch: boxes, scores and key points, under both names, through GGUF, and exported."""

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.tests.builders.image_checkpoints import images
from candle_convert.tests.builders.yolov8 import yolov8

CANDLE = {
    "0": "net.b1.0", "1": "net.b1.1", "2": "net.b2.0", "3": "net.b2.1", "4": "net.b2.2", "5": "net.b3.0",
    "6": "net.b3.1", "7": "net.b4.0", "8": "net.b4.1", "9": "net.b5.0", "12": "fpn.n1", "15": "fpn.n2",
    "16": "fpn.n3", "18": "fpn.n4", "19": "fpn.n5", "21": "fpn.n6", "22": "head",
}  # fmt: skip
TOLERANCE = 3e-5


def candle_name(name):
    """The name in candle of a weight of ultralytics."""
    _, place, rest = name.split(".", 2)
    return f"{CANDLE[place]}.{rest.replace('m.', 'bottleneck.', 1) if rest.startswith('m.') else rest}"


@pytest.fixture(scope="module", params=[0, 5], ids=["boxes", "points"])
def case(request, tmp_path_factory):
    model = yolov8(points=request.param)
    path = tmp_path_factory.mktemp("yolo") / "model.pth"
    torch.save(model.state_dict(), path)
    return model, path


def _compare(found, model, pixels):
    with torch.no_grad():
        expected = model(torch.from_numpy(pixels))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.abs(found[name] - value.numpy()).max() <= TOLERANCE * np.abs(value.numpy()).max(), name


@pytest.mark.parametrize("size", [(1, 64, 64), (2, 64, 96)], ids=["square", "wide"])
def test_outputs(case, size):
    pixels = images(*size)
    _compare(cc.models.load(case[1])(pixel_values=pixels), case[0], pixels)


def test_other_names(case, tmp_path):
    model, path = case
    cc.save_file({candle_name(name): value for name, value in cc.load_file(path).items()}, tmp_path / "m.safetensors")
    pixels = images(1, 64, 64)
    _compare(cc.models.load(tmp_path / "m.safetensors")(pixel_values=pixels), model, pixels)


def test_gguf(case, tmp_path):
    cc.convert(case[1], tmp_path / "m.gguf")
    pixels = images(1, 64, 64)
    _compare(cc.models.load(tmp_path / "m.gguf")(pixel_values=pixels), case[0], pixels)


def test_export(case, tmp_path):
    cc.convert(case[1], tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    names = [output.name for output in session.get_outputs()]
    for pixels in (images(2, 64, 64), images(1, 96, 64)):
        found = session.run(None, {"pixel_values": pixels})
        _compare(dict(zip(names, found, strict=True)), case[0], pixels)
