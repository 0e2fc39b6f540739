"""CRAFT against torch: score maps from a pickle, through GGUF, and exported."""

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.tests.builders.craft import craft
from candle_convert.tests.builders.image_checkpoints import images

NAMES = ("region_score", "affinity_score")


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    path = tmp_path_factory.mktemp("craft") / "model.pth"
    return craft(path), path


def _compare(found, model, pixels):
    with torch.no_grad():
        expected = model(torch.from_numpy(pixels)).numpy()
    assert set(found) == set(NAMES)
    for place, name in enumerate(NAMES):
        assert np.abs(found[name] - expected[..., place]).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("size", [(1, 64, 96), (2, 70, 50)], ids=["even", "odd"])
def test_outputs(case, size):
    pixels = images(*size)
    found = cc.models.load(case[1])
    assert found.task == "text-detection"
    _compare(found(pixels), case[0], pixels)


def test_gguf(case, tmp_path):
    cc.convert(case[1], tmp_path / "m.gguf")
    pixels = images(1, 64, 64)
    _compare(cc.models.load(tmp_path / "m.gguf")(pixels), case[0], pixels)


def test_export(case, tmp_path):
    cc.convert(case[1], tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    for pixels in (images(2, 64, 64), images(1, 96, 70)):
        found = session.run(NAMES, {"pixel_values": pixels})
        _compare(dict(zip(NAMES, found, strict=True)), case[0], pixels)
    assert cc.models.load(tmp_path / "m.onnx").task == "text-detection"
