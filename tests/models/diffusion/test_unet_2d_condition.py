"""UNets of Stable Diffusion 1, 2 and XL and their relatives with random weights: the prediction is diffusers'."""

import inspect
import json

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.models.diffusion.unet_2d_condition import UNET_KEYS
from candle_convert.runtime.base.errors import FormatError, UsageError
from candle_convert.tests.builders.denoisers import XL, arrays, inputs, predicted, unet
from safetensors.torch import load_file, save_file

diffusers = pytest.importorskip("diffusers")
WEIGHTS = "diffusion_pytorch_model.safetensors"
TOLERANCE = 1e-4
VARIANTS = {
    "1.5": {},
    "2.1": {"use_linear_projection": True, "attention_head_dim": (2, 3, 4), "upcast_attention": True},
    "xl": XL,
    "lcm": {"time_cond_proj_dim": 10},
    "inpainting": {"in_channels": 9},
    "upscaler": {
        "in_channels": 7,
        "num_class_embeds": 12,
        "only_cross_attention": (True, True, False),
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    },
    "unclip": {"class_embed_type": "projection", "projection_class_embeddings_input_dim": 14},
    "frequencies": {"flip_sin_to_cos": False, "freq_shift": 1, "time_embedding_dim": 40},
    "other layers": {"layers_per_block": (2, 1, 3), "act_fn": "gelu", "conv_in_kernel": 1, "conv_out_kernel": 5},
    "heads of no divisor": {"attention_head_dim": 5, "norm_eps": 1e-3},
    "no middle": {"mid_block_type": None},
    "middle without attention": {
        "mid_block_type": "UNetMidBlock2D",
        "layers_per_block": 2,
        "transformer_layers_per_block": (1, (2, 1), 1),
        "reverse_transformer_layers_per_block": (1, (1, 3, 1), (1, 1, 2)),
    },
    "one stage": {
        "block_out_channels": (16,),
        "down_block_types": ("CrossAttnDownBlock2D",),
        "up_block_types": ("CrossAttnUpBlock2D",),
    },
}
SIZES = ((2, 8, 12), (1, 9, 13), (3, 7, 4))
"""Rows, height and width; the last two do not divide by the strides."""
SETTINGS = {
    "attention_type": "gated",
    "center_input_sample": True,
    "class_embeddings_concat": True,
    "cross_attention_norm": "layer_norm",
    "dual_cross_attention": True,
    "encoder_hid_dim": 8,
    "encoder_hid_dim_type": "text_proj",
    "mid_block_scale_factor": 2,
    "mid_block_type": "UNetMidBlock2DSimpleCrossAttn",
    "num_attention_heads": 4,
    "resnet_out_scale_factor": 2.0,
    "resnet_skip_time_act": True,
    "resnet_time_scale_shift": "scale_shift",
    "time_embedding_act_fn": "silu",
    "time_embedding_type": "fourier",
    "timestep_post_act": "silu",
    "class_embed_type": "timestep",
    "addition_embed_type": "image",
    "act_fn": "tanh",
}
"""Values that change the result, and are not supported."""
INVALID = {
    "attention_head_dim": [4, 4],
    "block_out_channels": [16, 24],
    "cross_attention_dim": [20, 20, 24],
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D", "AttnDownBlock2D"],
    "layers_per_block": 1 << 30,
    "norm_num_groups": None,
    "only_cross_attention": 3,
    "transformer_layers_per_block": [1, [1, 1], 1],
    "reverse_transformer_layers_per_block": [1, 1],
    "up_block_types": ["UpBlock2D"],
}


def close(found, expected):
    assert found.shape == tuple(expected.shape)
    np.testing.assert_allclose(found, expected.numpy(), atol=TOLERANCE * expected.abs().max().item(), rtol=0)


def changed(folder, **settings):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("seed", [0, 1])
def test_prediction(tmp_path, variant, seed):
    reference = unet(tmp_path, seed, **VARIANTS[variant])
    model = cc.models.load(tmp_path, threads=1)
    for size in SIZES:
        feeds = inputs(reference, *size, seed=seed + 5)
        close(model(**arrays(feeds))["sample"], predicted(reference, feeds).sample)


def test_stages_that_halve_without_a_border(tmp_path):
    reference = unet(tmp_path, downsample_padding=0)
    feeds = inputs(reference, 2, 8, 12)
    close(cc.models.load(tmp_path, threads=1)(**arrays(feeds))["sample"], predicted(reference, feeds).sample)


def test_half_precision_weights(tmp_path):
    reference = unet(tmp_path, **XL).half()
    reference.save_pretrained(tmp_path)
    feeds = inputs(reference, 2, 9, 8)
    close(cc.models.load(tmp_path, threads=1)(**arrays(feeds))["sample"], predicted(reference.float(), feeds).sample)


def test_one_timestep_for_all_rows(tmp_path):
    reference = unet(tmp_path)
    feeds = inputs(reference, 2, 8, 8) | {"timestep": torch.tensor(321)}
    close(cc.models.load(tmp_path, threads=1)(**arrays(feeds))["sample"], predicted(reference, feeds).sample)


@pytest.mark.parametrize("variant", ["1.5", "xl"])
def test_exported_graph(tmp_path, variant):
    reference = unet(tmp_path / "unet", **VARIANTS[variant])
    cc.convert(tmp_path / "unet", tmp_path / "unet.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "unet.onnx", providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    for size in SIZES:
        feeds = inputs(reference, *size)
        floats = {name: item.astype(np.float32) for name, item in arrays(feeds).items()}
        assert sorted(names) == sorted(floats)
        close(session.run(["out_sample"], floats)[0], predicted(reference, feeds).sample)


def test_defaults_are_those_of_diffusers():
    parameters = inspect.signature(diffusers.UNet2DConditionModel.__init__).parameters
    stated = {row.hf: row.default for row in UNET_KEYS if hasattr(row, "hf")}
    theirs = {name: parameters[name].default for name in stated}
    assert stated == {name: list(item) if isinstance(item, tuple) else item for name, item in theirs.items()}
    without_effect = {"self", "dropout", "mid_block_only_cross_attention", "addition_embed_type_num_heads"}
    assert parameters.keys() - stated.keys() == without_effect


@pytest.mark.parametrize(("key", "value"), [*SETTINGS.items(), *INVALID.items()])
def test_bad_configurations(tmp_path, key, value):
    unet(tmp_path)
    changed(tmp_path, **{key: value})
    named = "block_out_channels|down_block_types" if key == "block_out_channels" else key
    with pytest.raises(FormatError, match=named) as caught:
        cc.models.load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"projection_class_embeddings_input_dim": None}, "projection_class_embeddings_input_dim"),
        ({"addition_time_embed_dim": None}, "addition_time_embed_dim"),
        ({"addition_time_embed_dim": 1 << 30}, "addition_time_embed_dim"),
        ({"addition_time_embed_dim": 2, "freq_shift": 1}, "addition_time_embed_dim"),
        ({"addition_embed_type": None}, "add_embedding"),
        ({"mid_block_type": None}, "mid_block"),
        ({"mid_block_type": "UNetMidBlock2D"}, "mid_block.attentions"),
        ({"reverse_transformer_layers_per_block": [[3], 2, 1]}, "reverse_transformer_layers_per_block"),
        ({"transformer_layers_per_block": [1, 2, 4]}, "transformer_blocks.3"),
        ({"transformer_layers_per_block": [1, 2, 2]}, "transformer_blocks.2"),
        ({"attention_head_dim": 64}, "proj_in"),
        ({"cross_attention_dim": 24}, "to_k"),
        ({"use_linear_projection": False}, "proj_in"),
        ({"block_out_channels": [1 << 20, 24, 32]}, "conv_in"),
    ],
)
def test_configurations_that_do_not_fit(tmp_path, settings, named):
    unet(tmp_path, **XL)
    changed(tmp_path, **settings)
    with pytest.raises(FormatError, match=named) as caught:
        cc.models.load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["conv_in.bias", "mid_block.attentions.0.transformer_blocks.0.ff.net.2.weight"])
def test_damaged_weights(tmp_path, name):
    unet(tmp_path)
    weights = load_file(tmp_path / WEIGHTS)
    save_file({**weights, name: torch.zeros(3, 3)}, tmp_path / WEIGHTS)
    with pytest.raises(FormatError, match=name):
        cc.models.load(tmp_path)
    save_file({key: item for key, item in weights.items() if key != name}, tmp_path / WEIGHTS)
    with pytest.raises(FormatError, match=name):
        cc.models.load(tmp_path)
    save_file({**weights, f"{name}.more": torch.zeros(3)}, tmp_path / WEIGHTS)
    with pytest.raises(FormatError, match="more"):
        cc.models.load(tmp_path)


def test_wrong_inputs(tmp_path):
    reference = unet(tmp_path)
    model, feeds = cc.models.load(tmp_path, threads=1), arrays(inputs(reference, 2, 8, 8))
    for wrong in (
        {"sample": feeds["sample"][:, :3]},
        {"timestep": np.zeros(3)},
        {"encoder_hidden_states": feeds["encoder_hidden_states"][..., :5]},
        {"encoder_hidden_states": None},
        {"text_embeds": np.zeros((2, 4))},
        {"mid_block_additional_residual": np.zeros((2, 32, 2, 2))},
    ):
        with pytest.raises(UsageError) as caught:
            model(**{**feeds, **wrong})
        assert "\n" not in str(caught.value)
