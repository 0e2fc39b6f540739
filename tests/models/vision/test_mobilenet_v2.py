"""MobileNetV2 under torchvision's names, against torch: at two sizes, through GGUF, and renamed."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.tests.builders.image_checkpoints import images
from candle_convert.tests.builders.mobilenet_v2 import mobilenet_v2


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    path = tmp_path_factory.mktemp("mobilenet") / "model.pth"
    return mobilenet_v2(path), path


def _compare(path, model, size=(2, 96, 64)):
    pixels = images(*size)
    with torch.no_grad():
        expected = model(torch.from_numpy(pixels)).numpy()
    found = cc.models.load(path)(pixel_values=pixels)["logits"]
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("size", [(1, 64, 64), (2, 75, 98)], ids=["square", "odd"])
def test_outputs(case, size):
    _compare(case[1], case[0], size)


def test_gguf(case, tmp_path):
    cc.convert(case[1], tmp_path / "m.gguf")
    _compare(tmp_path / "m.gguf", case[0])


def test_names_of_transformers_and_back(case, tmp_path):
    cc.convert(case[1], tmp_path / "hf", to="safetensors", names="hf")
    _compare(tmp_path / "hf", case[0])
    cc.convert(tmp_path / "hf", tmp_path / "back.pth", names="torchvision")
    back, given = (torch.load(path, weights_only=True) for path in (tmp_path / "back.pth", case[1]))
    assert {name for name in given if "num_batches" not in name} <= back.keys() <= given.keys()
    assert all(torch.equal(back[name], given[name]) for name in back)
