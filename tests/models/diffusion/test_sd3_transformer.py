"""Transformers of Stable Diffusion 3, 3.5 large and 3.5 medium with random weights: the prediction is diffusers'."""

import inspect
import json

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert import models
from candle_convert.models.diffusion.sd3_transformer import KEYS
from candle_convert.runtime.base.errors import FormatError
from candle_convert.runtime.contract.architecture import Key
from candle_convert.tests.builders import diffusion_transformers as builders
from safetensors.torch import load_file

diffusers = pytest.importorskip("diffusers")
single_file = pytest.importorskip("diffusers.loaders.single_file_utils")

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
    stated = {key.hf: key.default for key in KEYS if isinstance(key, Key)}
    assert stated == {
        name: neutral.get(name, parameter.default) for name, parameter in parameters.items() if name != "self"
    }


def test_a_norm_that_is_not_supported_is_refused(tmp_path):
    diffusers.SD3Transformer2DModel(**SIZES).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"qk_norm": "layer_norm"}))
    with pytest.raises(FormatError, match="qk_norm"):
        models.load(tmp_path)


def test_more_layers_than_any_model_has_are_refused(tmp_path):
    config = {"_class_name": "SD3Transformer2DModel", **SIZES, "num_layers": 2**31 - 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    builders.saved_original(tmp_path / "model.safetensors", {"pos_embed.pos_embed": torch.zeros(1, 144, 64)})
    with pytest.raises(FormatError, match="num_layers"):
        models.load(tmp_path)


@pytest.fixture(scope="module", params=VARIANTS)
def published_heads(request, tmp_path_factory):
    """A model with heads of 64 elements, which files of SD3 without norms of heads do not state, its directory, and its
    weights under the authors' names."""
    settings = {**SIZES, "attention_head_dim": 64, "num_attention_heads": 2, "caption_projection_dim": 128}
    model = builders.transformer("SD3Transformer2DModel", 1, **settings, **VARIANTS[request.param])
    folder = tmp_path_factory.mktemp("sd3")
    model.save_pretrained(folder)
    return model, folder, builders.original(model.state_dict(), builders.sd3_modules(settings["num_layers"]))


@pytest.mark.parametrize("prefix", ["", "model.diffusion_model."])
def test_names_of_the_authors(published_heads, tmp_path, prefix):
    model, folder, weights = published_heads
    state = model.state_dict()
    names = single_file.convert_sd3_transformer_checkpoint_to_diffusers(dict(weights))
    assert names.keys() == state.keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in names.items())
    file = builders.saved_original(
        tmp_path / "sd3.safetensors", {prefix + name: tensor for name, tensor in weights.items()}
    )
    random = np.random.default_rng(2)
    shapes = {"hidden_states": (2, 16, 8, 12), "encoder_hidden_states": (2, 7, 40), "pooled_projections": (2, 24)}
    inputs = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    inputs["timestep"] = np.array([300, 900], np.float32)
    samples = [models.load(path, threads=1)(**inputs)["sample"] for path in (folder, file)]
    np.testing.assert_array_equal(*samples)
    with torch.no_grad():
        expected = model(**{name: torch.from_numpy(item) for name, item in inputs.items()}).sample.numpy()
    np.testing.assert_allclose(samples[1], expected, atol=1e-4 * np.abs(expected).max())


def test_directory_under_the_names_of_the_authors(published_heads, tmp_path):
    _, folder, weights = published_heads
    cc.convert(folder, tmp_path / "sd3.safetensors", names="original")
    written = load_file(tmp_path / "sd3.safetensors")
    assert written.keys() == weights.keys()
    assert all(torch.equal(tensor, written[name]) for name, tensor in weights.items())


@pytest.mark.parametrize(
    ("name", "shape", "why"),
    [
        ("pos_embed", (1, 143, 128), "pos_embed"),
        ("x_embedder.proj.weight", (128, 16), "x_embedder"),
        ("joint_blocks.0.context_block.attn.qkv.weight", (383, 128), "context_block.attn.qkv"),
        ("joint_blocks.999999999.x_block.attn.qkv.weight", (384, 128), "joint_blocks"),
        ("joint_blocks.1.x_block.attn2.proj.weight", (128, 128, 1), "attn2"),
    ],
)
def test_bad_shapes_and_names(published_heads, tmp_path, name, shape, why):
    file = builders.saved_original(tmp_path / "sd3.safetensors", published_heads[2] | {name: torch.zeros(shape)})
    with pytest.raises(FormatError, match=why) as caught:
        models.load(file)
    assert "\n" not in str(caught.value)
