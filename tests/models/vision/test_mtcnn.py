"""MTCNN against torch: each network, from three pickles, one file, GGUF and three exported graphs."""

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.image_checkpoints import images
from candle_convert.tests.builders.mtcnn import SIZES, mtcnn
from candle_convert.tests.builders.pictures import made


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mtcnn")
    return mtcnn(folder), folder


def _pixels(name):
    batch, channels, height, width = SIZES[name]
    return images(batch, height, width)[:, :channels]


def _compare(found, network, pixels):
    with torch.no_grad():
        expected = network(torch.from_numpy(pixels))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.allclose(found[name], value.numpy(), atol=1e-5), name


def _judged(model, name, pixels):
    judged = model.judge(name, pixels)
    landmarks = {} if judged.landmarks is None else {"landmarks": judged.landmarks}
    return {"scores": judged.scores, "offsets": judged.offsets, **landmarks}


@pytest.mark.parametrize("suffix", ["", ".safetensors", ".gguf"])
def test_networks(case, suffix, tmp_path):
    networks, path = case
    if suffix:
        cc.convert(path, tmp_path / f"m{suffix}")
        path = tmp_path / f"m{suffix}"
    model = cc.models.load(path)
    assert model.task == "face-detection"
    for name, network in networks.items():
        _compare(_judged(model, name, _pixels(name)), network, _pixels(name))


def test_export(case, tmp_path):
    networks, path = case
    cc.convert(path, tmp_path, to="onnx")
    model = cc.models.load(tmp_path)
    for name, network in networks.items():
        pixels = _pixels(name)
        _compare(_judged(model, name, pixels), network, pixels)
        session = onnxruntime.InferenceSession(tmp_path / f"{name}.onnx")
        names = [output.name for output in session.get_outputs()]
        _compare(dict(zip(names, session.run(None, {"pixel_values": pixels}), strict=True)), network, pixels)
    picture = made(60, 50)
    assert model.predict(picture, threshold=0.0) == cc.models.load(path).predict(picture, threshold=0.0)
    assert run(["models", "show", str(tmp_path)]) == run(["verify", str(path), str(tmp_path)]) == 0


def test_a_missing_network_is_named(case, tmp_path):
    for name in ("pnet", "rnet"):
        (tmp_path / f"{name}.pt").write_bytes((case[1] / f"{name}.pt").read_bytes())
    with pytest.raises(cc.Error, match=r"rnet\.pt"):
        cc.models.load(tmp_path)
