"""How pictures are prepared travels through GGUF: the same picture has the scores of the model's directory."""

import json

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.tests.builders.image_checkpoints import image_model, saved
from PIL import Image

SIZES = {"image_size": 16, "patch_size": 8, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
STATED = {
    "preprocessor_config.json": {
        "image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}, "image_mean": [0.1, 0.2, 0.3],
    },
    "config.json": {"pretrained_cfg": {"input_size": [3, 16, 16], "mean": [0.4, 0.5, 0.6], "std": [0.2, 0.2, 0.2]}},
}  # fmt: skip


@pytest.mark.parametrize("name", STATED)
def test_scores_of_a_picture(name, tmp_path):
    folder = saved(image_model("ViTForImageClassification", **SIZES, intermediate_size=16), tmp_path / "hf")
    path = folder / name
    path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **STATED[name]}))
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 24, 3), np.uint8))
    wanted = models.load(folder).predict(picture)
    cc.convert(folder, tmp_path / "m.gguf")
    cc.convert(tmp_path / "m.gguf", tmp_path / "back", to="safetensors")
    for other in ("m.gguf", "back"):
        found = models.load(tmp_path / other).predict(picture)
        assert [row["label"] for row in found] == [row["label"] for row in wanted]
        np.testing.assert_allclose([row["score"] for row in found], [row["score"] for row in wanted], rtol=1e-5)
