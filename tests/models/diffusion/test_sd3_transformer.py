"""Transformers of Stable Diffusion 3, 3.5 large and 3.5 medium with random weights: the prediction is diffusers'."""

import inspect
import json

import numpy as np
import pytest
import torch
from candle_convert import models
from candle_convert.models.diffusion.sd3_transformer import KEYS
from candle_convert.runtime.base.errors import FormatError

diffusers = pytest.importorskip("diffusers")

SIZES = {
    "sample_size": 16,
    "num_layers": 3,
    "attention_head_dim": 16,
    "num_attention_heads": 4,
    "joint_attention_dim": 40,
    "caption_projection_dim": 64,
    "pooled_projection_dim": 24,
    "pos_embed_max_size": 12,
}
VARIANTS = {
    "3": {},
    "3.5-large": {"qk_norm": "rms_norm"},
    "3.5-medium": {"qk_norm": "rms_norm", "dual_attention_layers": (0, 1)},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("height", "width"), [(8, 12), (24, 6)])
def test_prediction(tmp_path, variant, height, width):
    torch.manual_seed(0)
    reference = diffusers.SD3Transformer2DModel(**SIZES, **VARIANTS[variant]).eval()
    for parameter in reference.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    reference.save_pretrained(tmp_path)
    inputs = {
        "hidden_states": torch.randn(2, 16, height, width),
        "encoder_hidden_states": torch.randn(2, 7, 40),
        "pooled_projections": torch.randn(2, 24),
        "timestep": torch.tensor([300.0, 900.0]),
    }
    with torch.no_grad():
        expected = reference(**inputs).sample.numpy()
    sample = models.load(tmp_path, threads=1)(**{name: value.numpy() for name, value in inputs.items()})["sample"]
    assert sample.shape == expected.shape
    np.testing.assert_allclose(sample, expected, atol=1e-4 * np.abs(expected).max())


def test_defaults_are_those_of_diffusers():
    parameters = inspect.signature(diffusers.SD3Transformer2DModel.__init__).parameters
    neutral = {"qk_norm": "none", "dual_attention_layers": []}
    stated = {key.hf: key.default for key in KEYS}
    assert stated == {
        name: neutral.get(name, parameter.default) for name, parameter in parameters.items() if name != "self"
    }


def test_a_norm_that_is_not_supported_is_refused(tmp_path):
    diffusers.SD3Transformer2DModel(**SIZES).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"qk_norm": "layer_norm"}))
    with pytest.raises(FormatError, match="qk_norm"):
        models.load(tmp_path)
