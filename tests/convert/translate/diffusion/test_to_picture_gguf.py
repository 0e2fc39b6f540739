"""UNets as GGUF files: diffusers reads what is written, and what the layout cannot express is refused."""

import json
import subprocess
import sys

import candle_convert as cc
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.text_to_image import telling

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")
gguf = pytest.importorskip("gguf")
safetensors = pytest.importorskip("safetensors.torch")
CROSS, PLAIN = "CrossAttn{}Block2D", "{}Block2D"


def unet(folder, kinds=(CROSS, PLAIN), **settings):
    """A folder with a small UNet of Stable Diffusion 1's settings but for those given, and the network of diffusers."""
    own = {
        "sample_size": 16, "block_out_channels": (32, 64), "layers_per_block": 1, "cross_attention_dim": 24,
        "down_block_types": [kind.format("Down") for kind in kinds],
        "up_block_types": [kind.format("Up") for kind in reversed(kinds)], **settings,
    }  # fmt: skip
    made = telling(diffusers.UNet2DConditionModel(**own)).eval()
    made.save_pretrained(folder)
    return made


WRITTEN = {
    "depth-of-each-stage": {"layers_per_block": [1, 1]},
    "transformers-of-each-stage": {
        "kinds": (CROSS, CROSS), "transformer_layers_per_block": [1, 2], "use_linear_projection": True,
        "attention_head_dim": (1, 1),
    },
    "middle-alone": {
        "kinds": (PLAIN, CROSS, PLAIN), "block_out_channels": (32, 64, 64), "transformer_layers_per_block": 2,
        "use_linear_projection": True, "attention_head_dim": (1, 1, 1),
    },
    "sizes": {
        "use_linear_projection": True, "attention_head_dim": (1, 1), "addition_embed_type": "text_time",
        "addition_time_embed_dim": 256, "projection_class_embeddings_input_dim": 1600,
    },
}  # fmt: skip


def check_written(made, folder, out):
    """diffusers reads the file as the network, and so do we without a config.json next to it."""
    assert run(["convert", str(folder), str(out)]) == 0
    weights = {
        f"model.diffusion_model.{tensor.name}": torch.from_numpy(tensor.data.copy())
        for tensor in gguf.GGUFReader(out).tensors
    }
    plain = folder.with_name("plain")
    depth = made.config.layers_per_block
    made.register_to_config(layers_per_block=depth[0] if isinstance(depth, list) else depth)
    made.save_config(plain)  # diffusers' reader takes no list
    read = diffusers.UNet2DConditionModel.from_single_file(
        weights, config=str(plain), local_files_only=True, torch_dtype=torch.float32
    )
    assert run(["convert", str(out), f"{out.parent}/again/", "--to", "safetensors"]) == 0
    again = out.parent / "again"
    ours = diffusers.UNet2DConditionModel.from_config(diffusers.UNet2DConditionModel.load_config(again)).eval()
    ours.load_state_dict(safetensors.load_file(again / "model.safetensors"))
    for found in (read, ours):
        assert found.state_dict().keys() == made.state_dict().keys()
        assert all(torch.equal(found.state_dict()[key], value) for key, value in made.state_dict().items())
    given = {"sample": torch.ones(1, 4, 16, 16), "timestep": 7, "encoder_hidden_states": torch.ones(1, 5, 24)}
    if made.config.addition_embed_type:
        given["added_cond_kwargs"] = {"text_embeds": torch.ones(1, 64), "time_ids": torch.ones(1, 6)}
    with torch.no_grad():
        assert torch.equal(ours(**given).sample, made(**given).sample)


@pytest.mark.parametrize("name", WRITTEN)
def test_unets_are_written(name, tmp_path):
    made = unet(tmp_path / "unet", **WRITTEN[name])
    check_written(made, tmp_path / "unet", tmp_path / "out.gguf")


def test_a_configuration_that_leaves_out_defaults(tmp_path):
    """The stages of diffusers' defaults are those of Stable Diffusion 1."""
    folder, widths = tmp_path / "unet", (32, 32, 32, 32)
    made = unet(folder, (CROSS, CROSS, CROSS, PLAIN), block_out_channels=widths, layers_per_block=2)
    config = json.loads((folder / "config.json").read_text())
    for key in ("down_block_types", "up_block_types", "layers_per_block"):
        del config[key]
    (folder / "config.json").write_text(json.dumps(config))
    check_written(made, folder, tmp_path / "out.gguf")


REFUSED = {
    "groups": ({"norm_num_groups": 8}, "norm_num_groups is 8, but files imply 32"),
    "heads": ({"attention_head_dim": 4}, "attention_head_dim is [4, 4, 4"),
    "kernel": ({"conv_in_kernel": 5}, "conv_in_kernel is 5, but files imply 3"),
    "activation": ({"act_fn": "gelu"}, 'act_fn is "gelu", but files imply "silu"'),
    "shift": ({"freq_shift": 1}, "freq_shift is 1, but files imply 0"),
    "guidance": ({"time_cond_proj_dim": 16}, "no name for time_embedding.cond_proj.weight"),
    "classes": ({"num_class_embeds": 3}, "no name for class_embedding.weight"),
    "middle": ({"mid_block_type": "UNetMidBlock2D"}, 'mid_block_type is "UNetMidBlock2D", but files imply'),
    "way-up": ({"up_block_types": ["CrossAttnUpBlock2D"] * 2}, "no name for up_blocks.0.attentions."),
    "depths": ({"layers_per_block": [1, 2]}, "unequal numbers of residual blocks"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_layout_cannot_express_is_refused(name, tmp_path, capsys):
    settings, why = REFUSED[name]
    unet(tmp_path / "unet", **settings)
    assert run(["convert", str(tmp_path / "unet"), str(tmp_path / "out.gguf")]) == 4
    said = capsys.readouterr().err
    assert "✗ E-GGUF-SETTING" in said
    assert "GGUF files of the architecture sd1 cannot hold this network" in said
    assert why in said
    assert "Write safetensors" in said
    assert not (tmp_path / "out.gguf").exists()


AXES = {"published": ((16, 56, 56), 1), "narrow-heads": ((4, 6, 6), 4), "other-axes": ((32, 48, 48), 1)}


@pytest.mark.parametrize("name", AXES)
def test_rotary_axes_of_flux(name, tmp_path, capsys):
    """Files of FLUX say nothing of its axes: readers take those of the published models."""
    axes, heads = AXES[name]
    own = {"in_channels": 16, "num_layers": 1, "num_single_layers": 1, "joint_attention_dim": 24}
    sizes = {"attention_head_dim": sum(axes), "num_attention_heads": heads, "pooled_projection_dim": 8}
    made = telling(diffusers.FluxTransformer2DModel(**own, **sizes, axes_dims_rope=axes))
    made.save_pretrained(tmp_path / "flux")
    assert run(["convert", str(tmp_path / "flux"), str(tmp_path / "out.gguf")]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert ("W-GGUF-SETTING flux files need a config.json next to them" in said) == (name != "published")
    if name == "published":
        sizes = {"hidden_states": (1, 6, 16), "encoder_hidden_states": (1, 5, 24), "pooled_projections": (1, 8)}
        given = {key: torch.randn(shape) for key, shape in sizes.items()} | {"timestep": torch.tensor([0.5])}
        given |= {"img_ids": torch.arange(18.0).reshape(6, 3), "txt_ids": torch.zeros(5, 3)}
        with torch.no_grad():
            want = made.eval()(**given).sample.numpy()
        found = cc.models.load(tmp_path / "out.gguf", threads=1)(**{key: item.numpy() for key, item in given.items()})
        assert abs(found["sample"] - want).max() <= 2e-5 * abs(want).max()


def test_families_of_other_networks_are_not_imported():
    program = """
import sys
from types import SimpleNamespace
from candle_convert.convert.translate.diffusion.to_picture_gguf import picture_gguf
for name in ("llama", "unet_2d_condition"):
    config = SimpleNamespace(addition=None)
    picture_gguf(SimpleNamespace(architecture=SimpleNamespace(name=name), config=config))
print(*(name for name in sys.modules if ".models.diffusion." in name))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["candle_convert.models.diffusion.stable_diffusion_file"]
