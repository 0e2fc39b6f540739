"""Autoencoders of latent diffusion, against diffusers: with and without quant convs, under both attention names."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.runtime.base.errors import FormatError, UsageError
from safetensors.torch import load_file, save_file

diffusers = pytest.importorskip("diffusers")
VARIANTS = {
    "4 channels": {},
    "16 channels, no quant convs": {"latent_channels": 16, "use_quant_conv": False, "use_post_quant_conv": False},
    "no attention, two blocks": {"mid_block_add_attention": False, "layers_per_block": 2},
}
FIRST_NAMES = {".to_q.": ".query.", ".to_k.": ".key.", ".to_v.": ".value.", ".to_out.0.": ".proj_attn."}


def autoencoder(folder, **options):
    torch.manual_seed(3)
    model = diffusers.AutoencoderKL(
        block_out_channels=(16, 32), norm_num_groups=8, down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, **options,
    ).eval()  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


def compare(model, folder, rows=6, columns=9):
    pixels = torch.rand(2, 3, 4 * rows, 4 * columns) * 2 - 1
    latents = torch.randn(1, model.config.latent_channels, rows, columns)
    with torch.no_grad():
        expected = model.encode(pixels).latent_dist
        picture = model.decode(latents).sample
    ours = cc.models.load(folder)
    encoded = ours.encode(pixels.numpy())
    pairs = ((encoded["mean"], expected.mean), (encoded["logvar"], expected.logvar))
    for given, wanted in (*pairs, (ours.decode(latents.numpy())["sample"], picture)):
        assert given.shape == tuple(wanted.shape)
        assert np.abs(given - wanted.numpy()).max() <= 1e-4 * wanted.abs().max()


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_outputs(tmp_path, options):
    compare(autoencoder(tmp_path, **options), tmp_path)


@pytest.mark.parametrize(("rows", "columns"), [(64, 48), (37, 61)])
def test_tiles_have_no_seams(rows, columns, tmp_path):
    """Attention over thousands of positions and convolutions over many rows run in tiles; diffusers runs them whole."""
    model = autoencoder(tmp_path)
    assert not model.use_tiling
    assert not model.use_slicing
    compare(model, tmp_path, rows, columns)


def test_first_attention_names(tmp_path):
    model = autoencoder(tmp_path)
    path = tmp_path / "diffusion_pytorch_model.safetensors"
    renamed = {}
    for name, tensor in load_file(path).items():
        for ours, first in FIRST_NAMES.items():
            name = name.replace(ours, first) if ".attentions." in name else name
        renamed[name] = tensor
    assert any(".proj_attn." in name for name in renamed)
    save_file(renamed, path)
    compare(model, tmp_path)


def test_wrong_input(tmp_path):
    autoencoder(tmp_path)
    with pytest.raises(UsageError, match="another shape"):
        cc.models.load(tmp_path).decode(np.zeros((1, 3, 8, 8), np.float32))


def test_missing_weight(tmp_path):
    autoencoder(tmp_path)
    path = tmp_path / "diffusion_pytorch_model.safetensors"
    save_file({name: tensor for name, tensor in load_file(path).items() if "conv_norm_out" not in name}, path)
    with pytest.raises(FormatError, match="conv_norm_out"):
        cc.models.load(tmp_path)
