"""Wuerstchen's prior, decoder and autoencoder with random weights, against diffusers."""

import json

import numpy as np
import pytest
import torch
from candle_convert import models
from candle_convert.runtime.base.errors import Error, FormatError, UsageError
from candle_convert.tests.builders import wuerstchen
from safetensors.torch import load_file, save_file

WEIGHTS = "diffusion_pytorch_model.safetensors"
LEVELS = {
    "one level": {"c_hidden": [16], "nhead": [4], "blocks": [2], "level_config": ["CTA"], "inject_effnet": [True]},
    "other orders of blocks": {"level_config": ["TC", "ACT", "CAC"], "nhead": [-1, 3, 5]},
    "no latents at the last level": {"inject_effnet": [True, True, False], "kernel_size": 5, "c_r": 17},
    "patches of 1": {"patch_size": 1, "effnet_embd": 3, "c_cond": 24},
}


def close(given, expected):
    assert given.shape == expected.shape
    np.testing.assert_allclose(given, expected, atol=1e-4 * np.abs(expected).max())


def compare(folder, kind, options=None, **sizes):
    """Compare the prediction with diffusers'."""
    options = options or {}
    reference = wuerstchen.saved(folder, kind, sizes.get("seed", 0), **options)
    given = wuerstchen.inputs(kind, options, **sizes)
    with torch.no_grad():
        expected = reference(**{name: torch.from_numpy(item) for name, item in given.items()}).numpy()
    close(models.load(folder, threads=1)(**given)["sample"], expected)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("size", [(6, 8), (1, 5)])
def test_prior(tmp_path, size, seed):
    compare(tmp_path, "prior", size=size, seed=seed)


@pytest.mark.parametrize("options", [{"c_r": 7, "nhead": 3}, {"c_in": 1, "c": 8, "depth": 1, "nhead": 8, "c_r": 4}])
def test_other_priors(tmp_path, options):
    compare(tmp_path, "prior", options, batch=1, tokens=1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("size", "semantic"), [((16, 24), (3, 4)), ((8, 16), (6, 5)), ((24, 8), (1, 1)), ((16, 16), (13, 2))]
)
def test_decoder(tmp_path, size, semantic, seed):
    """Latents of the prior are enlarged at some levels and made smaller at others."""
    compare(tmp_path, "decoder", size=size, semantic=semantic, seed=seed)


@pytest.mark.parametrize("options", LEVELS.values(), ids=LEVELS)
def test_other_decoders(tmp_path, options):
    compare(tmp_path, "decoder", options, size=(16, 24), batch=1, tokens=3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["prior", "decoder"])
def test_weights_of_half_precision(tmp_path, kind, dtype):
    reference = wuerstchen.saved(tmp_path, kind).to(getattr(torch, dtype))
    reference.save_pretrained(tmp_path)
    given = wuerstchen.inputs(kind, {}, size=(16, 24))
    with torch.no_grad():
        expected = reference.float()(**{name: torch.from_numpy(item) for name, item in given.items()}).numpy()
    close(models.load(tmp_path, threads=1, activations="f32")(**given)["sample"], expected)


@pytest.mark.parametrize("threads", [1, 2])
def test_runs_are_the_same_each_time(tmp_path, threads):
    wuerstchen.saved(tmp_path, "decoder")
    given = wuerstchen.inputs("decoder", {}, size=(16, 24))
    first, *others = (models.load(tmp_path, threads=threads)(**given)["sample"] for _ in range(3))
    for other in others:
        np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"levels": 1, "up_down_scale_factor": 4, "latent_channels": 3},
        {"levels": 3, "up_down_scale_factor": 1, "in_channels": 1, "out_channels": 2},
    ],
)
def test_autoencoder(tmp_path, options, seed):
    reference = wuerstchen.saved(tmp_path, "vqgan", seed, **options)
    random = np.random.default_rng(seed)
    pixels = random.uniform(0, 1, (2, options.get("in_channels", 3), 16, 28)).astype(np.float32)
    latents = random.standard_normal((1, options.get("latent_channels", 4), 5, 7)).astype(np.float32)
    ours = models.load(tmp_path, threads=1)
    with torch.no_grad():
        close(ours.encode(pixels)["latents"], reference.encode(torch.from_numpy(pixels)).latents.numpy())
        close(ours.decode(latents)["sample"], reference.decode(torch.from_numpy(latents)).sample.numpy())
        nearest, _, (_, _, codes) = reference.vquantizer(torch.from_numpy(latents))
        decoded = reference.decode(torch.from_numpy(latents), force_not_quantize=False).sample.numpy()
    quantized = ours.quantize(latents)
    np.testing.assert_array_equal(quantized["codes"].reshape(-1), codes.numpy().reshape(-1))
    np.testing.assert_allclose(quantized["latents_of_codes"], nearest.numpy(), atol=1e-6)
    close(ours.decode(latents, quantized=True)["sample"], decoded)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("prior", {"c": 10**9}),
        ("prior", {"c_r": 3}),
        ("prior", {"c_r": 10**9}),
        ("prior", {"nhead": 65}),
        ("prior", {"nhead": 0}),
        ("prior", {"depth": 10**9}),
        ("prior", {"depth": 1}),
        ("prior", {"c_in": 7}),
        ("prior", {"c_cond": -1}),
        ("decoder", {"c_hidden": [16, 32]}),
        ("decoder", {"c_hidden": [16, 32, 10**9]}),
        ("decoder", {"level_config": ["CT", "CTA", "CTX"]}),
        ("decoder", {"level_config": ["CT", "CT", "CT"]}),
        ("decoder", {"level_config": "CTA"}),
        ("decoder", {"nhead": [-1, -1, 4]}),
        ("decoder", {"blocks": [1, 1, 10**9]}),
        ("decoder", {"blocks": [1, 1, 1]}),
        ("decoder", {"kernel_size": 4}),
        ("decoder", {"kernel_size": 5}),
        ("decoder", {"c_out": 8}),
        ("decoder", {"patch_size": 4}),
        ("decoder", {"inject_effnet": [True, True, True]}),
        ("decoder", {"effnet_embd": 10**9}),
        ("vqgan", {"levels": 17}),
        ("vqgan", {"levels": 7}),
        ("vqgan", {"embed_dim": 10**9}),
        ("vqgan", {"bottleneck_blocks": 10**9}),
        ("vqgan", {"up_down_scale_factor": 10**9}),
        ("vqgan", {"num_vq_embeddings": 33}),
        ("vqgan", {"scale_factor": float("nan")}),
    ],
)
def test_wrong_configurations(tmp_path, kind, change):
    wuerstchen.saved(tmp_path, kind)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(FormatError) as caught:
        models.load(tmp_path)
    assert "\n" not in str(caught.value.message)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("prior", "blocks.1.mapper.weight"),
        ("decoder", "effnet_mappers.1.weight"),
        ("vqgan", "down_blocks.3.1.running_mean"),
        ("vqgan", "vquantizer.embedding.weight"),
    ],
)
def test_weights_that_are_missing_or_of_another_shape(tmp_path, kind, name):
    wuerstchen.saved(tmp_path, kind)
    weights = load_file(tmp_path / WEIGHTS)
    whole = weights.pop(name)
    save_file(weights, tmp_path / WEIGHTS)
    with pytest.raises(FormatError):
        models.load(tmp_path)
    save_file(weights | {name: torch.cat([whole, whole])}, tmp_path / WEIGHTS)
    with pytest.raises(FormatError):
        models.load(tmp_path)


@pytest.mark.parametrize("size", [(15, 24), (16, 20), (0, 8)])
def test_sizes_that_do_not_divide(tmp_path, size):
    wuerstchen.saved(tmp_path, "decoder")
    with pytest.raises(Error):
        models.load(tmp_path, threads=1)(**wuerstchen.inputs("decoder", {}, size=size))


@pytest.mark.parametrize("shape", [(1, 3, 15, 16), (1, 4, 16, 16), (3, 16, 16), (1, 3, 0, 16)])
def test_pictures_of_another_shape(tmp_path, shape):
    wuerstchen.saved(tmp_path, "vqgan")
    with pytest.raises(UsageError):
        models.load(tmp_path, threads=1).encode(np.zeros(shape, np.float32))
