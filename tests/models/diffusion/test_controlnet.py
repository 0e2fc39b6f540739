"""ControlNets with random weights: the residuals are diffusers', and so is the prediction of a UNet with them."""

import inspect
import json

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.models.diffusion.controlnet import CONTROLNET_KEYS
from candle_convert.runtime.base.errors import FormatError, UsageError
from candle_convert.tests.builders.denoisers import XL, arrays, controlnet, inputs, predicted, unet

diffusers = pytest.importorskip("diffusers")
TOLERANCE = 1e-4
PARTS = {name: value for name, value in XL.items() if name != "up_block_types"}
VARIANTS = {
    "1.5": {},
    "xl": PARTS,
    "bgr": {"controlnet_conditioning_channel_order": "bgr", "use_linear_projection": True},
    "classes": {"num_class_embeds": 9, "freq_shift": 1},
    "middle without attention": {"mid_block_type": "UNetMidBlock2D"},
    "pooled": {"global_pool_conditions": True},
    "four channels": {"conditioning_channels": 4, "conditioning_embedding_out_channels": (8, 8), "act_fn": "mish"},
}
SIZES = ((2, 8, 12), (1, 9, 7))
SCALES = {"plain": {}, "half": {"conditioning_scale": 0.5}, "guess": {"conditioning_scale": 0.8, "guess_mode": True}}


def feeds_of(model, *size):
    """The inputs of a ControlNet, with a picture."""
    factor = 2 ** (len(model.config.conditioning_embedding_out_channels) - 1)
    batch, height, width = size
    random = torch.Generator().manual_seed(4)
    channels = model.config.conditioning_channels
    picture = torch.rand(batch, channels, height * factor, width * factor, generator=random)
    return inputs(model, *size) | {"controlnet_cond": picture}


def close(found, expected):
    assert found.shape == tuple(expected.shape)
    np.testing.assert_allclose(found, expected.numpy(), atol=TOLERANCE * expected.abs().max().item(), rtol=0)


def compared(found, wanted):
    assert len(found["down_block_res_samples"]) == len(wanted.down_block_res_samples)
    for ours, theirs in zip(found["down_block_res_samples"], wanted.down_block_res_samples, strict=True):
        close(ours, theirs)
    close(found["mid_block_res_sample"], wanted.mid_block_res_sample)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("scale", SCALES)
def test_residuals(tmp_path, variant, scale):
    reference = controlnet(tmp_path, **VARIANTS[variant])
    model = cc.models.load(tmp_path, threads=1)
    for size in SIZES:
        feeds = feeds_of(reference, *size)
        compared(model(**arrays(feeds), **SCALES[scale]), predicted(reference, feeds, **SCALES[scale]))


@pytest.mark.parametrize("variant", ["1.5", "xl", "pooled"])
def test_controlled_prediction(tmp_path, variant):
    control = controlnet(tmp_path / "controlnet", **VARIANTS[variant])
    reference = unet(tmp_path / "unet", **(XL if variant == "xl" else {}))
    model = cc.models.load(tmp_path / "unet", threads=1)
    found = cc.models.load(tmp_path / "controlnet", threads=1)
    for size in SIZES:
        feeds = feeds_of(control, *size)
        theirs, ours = predicted(control, feeds), found(**arrays(feeds))
        del feeds["controlnet_cond"]
        wanted = predicted(
            reference,
            feeds,
            down_block_additional_residuals=theirs.down_block_res_samples,
            mid_block_additional_residual=theirs.mid_block_res_sample,
        ).sample
        plain = predicted(reference, feeds).sample
        assert (wanted - plain).abs().max() > 0.1 * plain.abs().max()
        given = model(
            **arrays(feeds),
            down_block_additional_residuals=ours["down_block_res_samples"],
            mid_block_additional_residual=ours["mid_block_res_sample"],
        )["sample"]
        close(given, wanted)
        close(model(**arrays(feeds))["sample"], plain)


def test_exported_graph(tmp_path):
    reference = controlnet(tmp_path / "controlnet")
    cc.convert(tmp_path / "controlnet", tmp_path / "controlnet.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "controlnet.onnx", providers=["CPUExecutionProvider"])
    feeds = feeds_of(reference, 1, 9, 7)
    floats = {name: item.astype(np.float32) for name, item in arrays(feeds).items()}
    found, wanted = session.run(None, floats), predicted(reference, feeds)
    for ours, theirs in zip(found, (*wanted.down_block_res_samples, wanted.mid_block_res_sample), strict=True):
        close(ours, theirs)


def test_defaults_are_those_of_diffusers():
    parameters = inspect.signature(diffusers.ControlNetModel.__init__).parameters
    stated = {row.hf: row.default for row in CONTROLNET_KEYS if hasattr(row, "hf")}
    theirs = {name: parameters[name].default for name in stated}
    assert stated == {name: list(item) if isinstance(item, tuple) else item for name, item in theirs.items()}
    assert parameters.keys() - stated.keys() == {"self", "addition_embed_type_num_heads"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("conditioning_embedding_out_channels", []),
        ("conditioning_channels", 1 << 30),
        ("controlnet_conditioning_channel_order", "hsv"),
        ("encoder_hid_dim", 4),
        ("mid_block_type", "UNetMidBlock2DSimpleCrossAttn"),
        ("transformer_layers_per_block", [1, [1, 1], 1]),
        ("num_attention_heads", 4),
        ("resnet_time_scale_shift", "scale_shift"),
        ("layers_per_block", [1, 1]),
    ],
)
def test_bad_configurations(tmp_path, key, value):
    controlnet(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(FormatError, match=key) as caught:
        cc.models.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_wrong_scale_and_picture(tmp_path):
    reference = controlnet(tmp_path)
    model, feeds = cc.models.load(tmp_path, threads=1), arrays(feeds_of(reference, 1, 8, 8))
    with pytest.raises(UsageError, match="conditioning_scale"):
        model(**feeds, conditioning_scale=float("nan"))
    with pytest.raises(UsageError):
        model(**{**feeds, "controlnet_cond": feeds["controlnet_cond"][:, :2]})
    with pytest.raises(UsageError, match="controlnet_cond"):
        model(**{**feeds, "controlnet_cond": None})
