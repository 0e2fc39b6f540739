"""Original names of Stable Diffusion's parts against diffusers' own converters of single files."""

import numpy as np
import pytest
from candle_convert.models.schema.diffusion import autoencoder_names, unet_names
from candle_convert.models.schema.diffusion.module_names import renamed, swapped
from candle_convert.models.schema.diffusion.t5_names import BLOCK, t5_config
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tests.builders.text_to_image import hyperparameters

diffusers = pytest.importorskip("diffusers")
utilities = pytest.importorskip("diffusers.loaders.single_file_utils")
CROSS, PLAIN = "CrossAttn{}Block2D", "{}Block2D"
UNETS = {
    "1": ((CROSS, CROSS, PLAIN), {"layers_per_block": 2, "attention_head_dim": 8}),
    "2": ((CROSS, PLAIN), {"layers_per_block": 1, "use_linear_projection": True, "attention_head_dim": [1, 1]}),
    "xl": (
        (PLAIN, CROSS, CROSS),
        {
            "layers_per_block": 2,
            "transformer_layers_per_block": [1, 2, 3],
            "use_linear_projection": True,
            "attention_head_dim": [1, 1, 1],
            "addition_embed_type": "text_time",
            "addition_time_embed_dim": 256,
            "projection_class_embeddings_input_dim": 48,
        },
    ),
}


def unet(kinds, **settings):
    count = len(kinds)
    return diffusers.UNet2DConditionModel(
        down_block_types=[kind.format("Down") for kind in kinds],
        up_block_types=[kind.format("Up") for kind in reversed(kinds)],
        block_out_channels=[64] * count,
        norm_num_groups=32,
        cross_attention_dim=24,
        **settings,
    )


def arrays(module):
    return {name: value.numpy() for name, value in module.state_dict().items()}


@pytest.mark.parametrize("kind", UNETS)
def test_unet(kind):
    kinds, settings = UNETS[kind]
    made = unet(kinds, **settings)
    ours = arrays(made)
    modules = swapped(unet_names.bound_modules(hyperparameters(made)))
    original = {renamed(name, modules): value for name, value in ours.items()}
    assert None not in original
    prefixed = {f"model.diffusion_model.{name}": value for name, value in original.items()}
    found = utilities.convert_ldm_unet_checkpoint(prefixed, dict(made.config))
    assert found.keys() == ours.keys()
    assert all(np.array_equal(found[name], ours[name]) for name in ours)
    weights = {name: StoredTensor.of(value) for name, value in original.items()}
    back = dict(unet_names.unet_modules(weights))
    assert {renamed(name, back) for name in original} == ours.keys()
    config = unet_names.unet_config(weights)
    stated = {name: value for name, value in config.items() if name not in ("sample_size", "attention_head_dim")}
    for name, value in stated.items():
        own = made.config.get(name, kind)
        if name == "transformer_layers_per_block":
            own = [own] * len(kinds) if isinstance(own, int) else own
            own = [1 if "Cross" not in block else count for block, count in zip(kinds, own, strict=True)]
        if name != "_class_name":
            assert list(np.atleast_1d(own)) == list(np.atleast_1d(value)), name


@pytest.mark.parametrize(("stages", "depth", "quant"), [(4, 2, True), (2, 1, False)])
def test_autoencoder(stages, depth, quant):
    made = diffusers.AutoencoderKL(
        down_block_types=["DownEncoderBlock2D"] * stages, up_block_types=["UpDecoderBlock2D"] * stages,
        block_out_channels=[32, 64, 64, 96][:stages], layers_per_block=depth, use_quant_conv=quant,
        use_post_quant_conv=quant,
    )  # fmt: skip
    ours = arrays(made)
    modules = swapped(autoencoder_names.bound_modules(hyperparameters(made)))
    original = {renamed(name, modules): value for name, value in ours.items()}
    found = utilities.convert_ldm_vae_checkpoint(
        {f"first_stage_model.{name}": value for name, value in original.items()}, dict(made.config)
    )
    assert found.keys() == ours.keys()
    assert all(np.array_equal(found[name], ours[name]) for name in ours)
    weights = {name: StoredTensor.of(value) for name, value in original.items()}
    config = autoencoder_names.autoencoder_config(weights, made.config.scaling_factor)
    assert all(list(np.atleast_1d(made.config[name])) == list(np.atleast_1d(value)) for name, value in config.items()
               if name not in ("_class_name", "sample_size", "shift_factor"))  # fmt: skip


FAR = 4_000_000_000


@pytest.mark.parametrize(
    "names",
    [
        [f"input_blocks.{FAR}.0.weight"],
        ["input_blocks.0.0.weight", f"input_blocks.{FAR}.0.op.weight"],
        ["input_blocks.0.0.weight", f"output_blocks.{FAR}.0.op.weight"],
        ["input_blocks.0.0.weight", "input_blocks.0.0.op.weight"],
    ],
    ids=["blocks", "last-stage", "depth", "empty-stages"],
)
def test_numbers_in_names_of_unets_are_bounded(names):
    with pytest.raises(ValueError, match=r"blocks? in stages of"):
        unet_names.unet_shape(dict.fromkeys(names, StoredTensor.of(np.zeros(1, np.float32))))


def test_numbers_in_names_of_autoencoders_are_bounded():
    """1,000 stages and 1,000 blocks of the first one would be 4,000,000 modules."""
    names = [
        f"encoder.down.{a}.block.{b}.conv1.weight"
        for a, b in [*((i, 0) for i in range(1000)), *((0, i) for i in range(1000))]
    ]
    with pytest.raises(ValueError, match="1,000 stages of 1,000 blocks"):
        autoencoder_names.autoencoder_shape(dict.fromkeys(names, StoredTensor.of(np.zeros(1, np.float32))))


def test_no_heads_of_t5_divide_nothing():
    shapes = {
        "shared.weight": (8, 4),
        f"{BLOCK}0.layer.0.SelfAttention.relative_attention_bias.weight": (32, 0),
        f"{BLOCK}0.layer.0.SelfAttention.q.weight": (4, 4),
        f"{BLOCK}0.layer.1.DenseReluDense.wi_0.weight": (4, 4),
    }
    config = t5_config({name: StoredTensor.of(np.zeros(shape, np.float32)) for name, shape in shapes.items()})
    assert config["num_heads"] == 0
