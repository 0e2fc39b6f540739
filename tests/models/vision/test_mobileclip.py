"""MobileCLIP's image encoder: FastViT's recorded logits as vectors of length 1, from the names of OpenCLIP."""

import json

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
from candle_convert.models.pipelines.image.image_pipeline import stated_preparation
from candle_convert.tests.builders.timm_outputs import pixels, recorded, weights

CASE = recorded()["fastvit_mci0"]
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("mobileclip")
    texts = {"text.positional_embedding": np.zeros((4, 8), np.float32), "logit_scale": np.array(4.6, np.float32)}
    cc.save_file({f"visual.trunk.{name}": item for name, item in weights(CASE).items()} | texts, made / "m.safetensors")
    config = {
        "model_cfg": {"vision_cfg": {"timm_model_name": "fastvit_mci0", "image_size": 64}},
        "preprocess_cfg": {"mean": [0, 0, 0], "std": [1, 1, 1], "interpolation": "bilinear"},
    }
    (made / "open_clip_config.json").write_text(json.dumps(config))
    return made


def _compare(found):
    logits = CASE["logits"]
    expected = logits / np.linalg.norm(logits, axis=1, keepdims=True)
    assert np.abs(found - expected).max() <= TOLERANCE


def test_vectors(folder, tmp_path):
    cc.convert(folder, tmp_path / "m.gguf")
    for path in (folder, tmp_path / "m.gguf"):
        model = cc.models.load(path)
        assert model.task == "image-feature-extraction"
        _compare(model(pixels(*CASE["size"]))["image_embeds"])


def test_export(folder, tmp_path):
    cc.convert(folder, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    _compare(session.run(["image_embeds"], {"pixel_values": pixels(*CASE["size"])})[0])


def test_pictures_are_prepared_as_open_clip_states(folder):
    picture = np.random.default_rng(0).integers(0, 256, (90, 70, 3), np.uint8)
    model = cc.models.load(folder)
    prepared = stated_preparation(model.options.source).prepare(picture).values
    assert prepared.shape[-2:] == (64, 64)
    assert np.allclose(model.embed(picture), model(prepared.reshape(1, 3, 64, 64))["image_embeds"][0])
