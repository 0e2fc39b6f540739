"""Small denoising transformers of diffusers with random weights, and their weights under the authors' names."""

import json
import re

import diffusers
import numpy as np
import torch
from safetensors.torch import save_file

FLUX = {
    "in_channels": 16,
    "num_layers": 2,
    "num_single_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 4,
    "joint_attention_dim": 40,
    "pooled_projection_dim": 24,
    "guidance_embeds": True,
    "axes_dims_rope": (4, 6, 6),
}
Z_IMAGE = {
    "dim": 64,
    "n_layers": 2,
    "n_refiner_layers": 1,
    "n_heads": 4,
    "n_kv_heads": 4,
    "cap_feat_dim": 40,
    "axes_dims": [4, 6, 6],
    "axes_lens": [128, 64, 64],
}
FLUX_MODULES = (
    ("x_embedder", "img_in"),
    ("context_embedder", "txt_in"),
    ("time_text_embed.timestep_embedder.linear_1", "time_in.in_layer"),
    ("time_text_embed.timestep_embedder.linear_2", "time_in.out_layer"),
    ("time_text_embed.guidance_embedder.linear_1", "guidance_in.in_layer"),
    ("time_text_embed.guidance_embedder.linear_2", "guidance_in.out_layer"),
    ("time_text_embed.text_embedder.linear_1", "vector_in.in_layer"),
    ("time_text_embed.text_embedder.linear_2", "vector_in.out_layer"),
    (r"transformer_blocks.(\d+).norm1.linear", r"double_blocks.\1.img_mod.lin"),
    (r"transformer_blocks.(\d+).norm1_context.linear", r"double_blocks.\1.txt_mod.lin"),
    (r"transformer_blocks.(\d+).attn.to_([qkv])", r"double_blocks.\1.img_attn.qkv:\2"),
    (r"transformer_blocks.(\d+).attn.add_([qkv])_proj", r"double_blocks.\1.txt_attn.qkv:\2"),
    (r"transformer_blocks.(\d+).attn.norm_q.weight", r"double_blocks.\1.img_attn.norm.query_norm.scale"),
    (r"transformer_blocks.(\d+).attn.norm_k.weight", r"double_blocks.\1.img_attn.norm.key_norm.scale"),
    (r"transformer_blocks.(\d+).attn.norm_added_q.weight", r"double_blocks.\1.txt_attn.norm.query_norm.scale"),
    (r"transformer_blocks.(\d+).attn.norm_added_k.weight", r"double_blocks.\1.txt_attn.norm.key_norm.scale"),
    (r"transformer_blocks.(\d+).attn.to_out.0", r"double_blocks.\1.img_attn.proj"),
    (r"transformer_blocks.(\d+).attn.to_add_out", r"double_blocks.\1.txt_attn.proj"),
    (r"transformer_blocks.(\d+).ff.net.0.proj", r"double_blocks.\1.img_mlp.0"),
    (r"transformer_blocks.(\d+).ff.net.2", r"double_blocks.\1.img_mlp.2"),
    (r"transformer_blocks.(\d+).ff_context.net.0.proj", r"double_blocks.\1.txt_mlp.0"),
    (r"transformer_blocks.(\d+).ff_context.net.2", r"double_blocks.\1.txt_mlp.2"),
    (r"single_transformer_blocks.(\d+).norm.linear", r"single_blocks.\1.modulation.lin"),
    (r"single_transformer_blocks.(\d+).attn.to_([qkv])", r"single_blocks.\1.linear1:\2"),
    (r"single_transformer_blocks.(\d+).proj_mlp", r"single_blocks.\1.linear1:w"),
    (r"single_transformer_blocks.(\d+).attn.norm_q.weight", r"single_blocks.\1.norm.query_norm.scale"),
    (r"single_transformer_blocks.(\d+).attn.norm_k.weight", r"single_blocks.\1.norm.key_norm.scale"),
    (r"single_transformer_blocks.(\d+).proj_out", r"single_blocks.\1.linear2"),
    ("norm_out.linear", "final_layer.adaLN_modulation.1:/"),
    ("proj_out", "final_layer.linear"),
)
"""Modules of diffusers' FLUX and the authors'. After a colon: the letter by which rows of one tensor are sorted, or a
slash for one whose halves change places."""
Z_IMAGE_MODULES = (
    ("all_x_embedder.2-1", "x_embedder"),
    (r"all_final_layer.2-1.(.*)", r"final_layer.\1"),
    (r"(.*).attention.to_([qkv])", r"\1.attention.qkv:\2"),
    (r"(.*).attention.to_out.0", r"\1.attention.out"),
    (r"(.*).attention.norm_([qk])", r"\1.attention.\2_norm"),
)


def sd3_modules(layers):
    """Modules of diffusers' Stable Diffusion 3 with that many layers, and the authors'."""
    x, context = r"joint_blocks.\1.x_block", r"joint_blocks.\1.context_block"
    return (
        ("pos_embed.pos_embed", "pos_embed"),
        ("pos_embed.proj", "x_embedder.proj"),
        ("time_text_embed.timestep_embedder.linear_1", "t_embedder.mlp.0"),
        ("time_text_embed.timestep_embedder.linear_2", "t_embedder.mlp.2"),
        ("time_text_embed.text_embedder.linear_1", "y_embedder.mlp.0"),
        ("time_text_embed.text_embedder.linear_2", "y_embedder.mlp.2"),
        (r"transformer_blocks.(\d+).norm1.linear", f"{x}.adaLN_modulation.1"),
        (rf"transformer_blocks.({layers - 1}).norm1_context.linear", f"{context}.adaLN_modulation.1:/"),
        (r"transformer_blocks.(\d+).norm1_context.linear", f"{context}.adaLN_modulation.1"),
        (r"transformer_blocks.(\d+).(attn2?).to_([qkv])", rf"{x}.\2.qkv:\3"),
        (r"transformer_blocks.(\d+).(attn2?).norm_([qk])", rf"{x}.\2.ln_\3"),
        (r"transformer_blocks.(\d+).(attn2?).to_out.0", rf"{x}.\2.proj"),
        (r"transformer_blocks.(\d+).attn.add_([qkv])_proj", rf"{context}.attn.qkv:\2"),
        (r"transformer_blocks.(\d+).attn.norm_added_([qk])", rf"{context}.attn.ln_\2"),
        (r"transformer_blocks.(\d+).attn.to_add_out", f"{context}.attn.proj"),
        (r"transformer_blocks.(\d+).ff.net.0.proj", f"{x}.mlp.fc1"),
        (r"transformer_blocks.(\d+).ff.net.2", f"{x}.mlp.fc2"),
        (r"transformer_blocks.(\d+).ff_context.net.0.proj", f"{context}.mlp.fc1"),
        (r"transformer_blocks.(\d+).ff_context.net.2", f"{context}.mlp.fc2"),
        ("norm_out.linear", "final_layer.adaLN_modulation.1:/"),
        ("proj_out", "final_layer.linear"),
    )


def transformer(kind, seed, **settings):
    """A model of a class of diffusers, f32, all of whose weights show in the results."""
    torch.manual_seed(seed)
    model = getattr(diffusers, kind)(**settings).eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def flux(seed=0, **settings):
    """FLUX's transformer."""
    return transformer("FluxTransformer2DModel", seed, **{**FLUX, **settings})


def z_image(seed=0, **settings):
    """Z-Image's transformer."""
    return transformer("ZImageTransformer2DModel", seed, **{**Z_IMAGE, **settings})


def flux_inputs(model, seed=0, rows=4, columns=6, tokens=7, batch=2):
    """Inputs of FLUX's transformer by name, f32."""
    random, config = np.random.default_rng(seed), model.config
    positions = np.zeros((rows * columns, len(config.axes_dims_rope)), np.float32)
    positions[:, 1], positions[:, 2] = np.repeat(np.arange(rows), columns), np.tile(np.arange(columns), rows)
    inputs = {
        "hidden_states": random.standard_normal((batch, rows * columns, config.in_channels)),
        "encoder_hidden_states": random.standard_normal((batch, tokens, config.joint_attention_dim)),
        "pooled_projections": random.standard_normal((batch, config.pooled_projection_dim)),
        "timestep": random.uniform(0, 1, batch),
        "img_ids": positions,
        "txt_ids": np.zeros((tokens, len(config.axes_dims_rope))),
    }
    if config.guidance_embeds:
        inputs["guidance"] = random.uniform(1, 5, batch)
    return {name: item.astype(np.float32) for name, item in inputs.items()}


def z_image_inputs(model, seed=0, frames=1, height=8, width=12, tokens=7, batch=1):
    """Inputs of Z-Image's transformer by name, f32."""
    random, config = np.random.default_rng(seed), model.config
    inputs = {
        "x": random.standard_normal((batch, config.in_channels, frames, height, width)),
        "t": random.uniform(0, 1, batch),
        "cap_feats": random.standard_normal((batch, tokens, config.cap_feat_dim)),
    }
    return {name: item.astype(np.float32) for name, item in inputs.items()}


def predicted(model, inputs):
    """The model's prediction; Z-Image's takes and returns lists of latents and captions."""
    arrays = {name: torch.from_numpy(item) for name, item in inputs.items()}
    with torch.no_grad():
        if "cap_feats" not in arrays:
            return model(**arrays).sample.numpy()
        samples = model(list(arrays["x"]), arrays["t"], list(arrays["cap_feats"])).sample
        return torch.stack(list(samples)).numpy()


def original(state, modules):
    """The weights under the authors' names, of those under diffusers'."""
    found, fused = {}, {}
    for name, tensor in state.items():
        theirs, part = _renamed(name, modules)
        if part == "/":
            scale, shift = tensor.chunk(2)
            found[theirs] = torch.cat([shift, scale])
        elif part:
            fused.setdefault(theirs, {})[part] = tensor
        else:
            found[theirs] = tensor
    for name, pieces in fused.items():
        found[name] = torch.cat([pieces[part] for part in sorted(pieces, key="qkvw".index)])
    return found


def _renamed(name, modules):
    module, _, parameter = name.rpartition(".")
    for ours, theirs in modules:
        for each, end in ((name, ""), (module, f".{parameter}")):
            match = re.fullmatch(ours, each)
            if match is not None:
                stem, _, part = match.expand(theirs).partition(":")
                return f"{stem}{end}", part
    return name, ""


def saved_original(path, weights, config=None):
    """One file of weights, next to a config.json if given."""
    save_file({name: tensor.contiguous().clone() for name, tensor in weights.items()}, path)
    if config is not None:
        path.with_name("config.json").write_text(json.dumps(config))
    return path


def flux_config(model):
    """The authors' configuration of a FLUX transformer of diffusers."""
    config = model.config
    return {
        "in_channels": config.in_channels,
        "vec_in_dim": config.pooled_projection_dim,
        "context_in_dim": config.joint_attention_dim,
        "hidden_size": config.num_attention_heads * config.attention_head_dim,
        "mlp_ratio": 4.0,
        "num_heads": config.num_attention_heads,
        "depth": config.num_layers,
        "depth_single_blocks": config.num_single_layers,
        "axes_dim": list(config.axes_dims_rope),
        "theta": 10000,
        "qkv_bias": True,
        "guidance_embed": config.guidance_embeds,
    }
