"""Small denoising networks and autoencoders of diffusers with random weights, as directories. To record them as small
checkpoints, run ``python -m candle_convert.tests.builders.denoisers FOLDER`` and hand the folders that it prints to
``python -m candle_convert.tests.builders.small_checkpoints``."""

import sys
from pathlib import Path

import torch
from candle_convert.tests.builders.image_checkpoints import randomized

UNET = {
    "block_out_channels": (16, 24, 32),
    "norm_num_groups": 4,
    "layers_per_block": 1,
    "cross_attention_dim": 20,
    "attention_head_dim": 4,
    "down_block_types": ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
}
"""Three stages of a UNet, two with attention."""
XL = {
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "attention_head_dim": (2, 3, 4),
    "transformer_layers_per_block": (1, 2, 3),
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 8,
    "projection_class_embeddings_input_dim": 8 * 6 + 12,
}
"""What Stable Diffusion XL adds."""
CONTROL = {"conditioning_embedding_out_channels": (8, 12, 16)}
AUTOENCODER = {
    "block_out_channels": (16, 32),
    "norm_num_groups": 8,
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
}
SD3 = {
    "sample_size": 16,
    "num_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": 40,
    "caption_projection_dim": 32,
    "pooled_projection_dim": 24,
    "pos_embed_max_size": 12,
    "qk_norm": "rms_norm",
    "dual_attention_layers": (0,),
}


def denoiser(kind, folder, seed=0, **settings):
    """A model of the class `kind` of diffusers, which is saved in a folder."""
    import diffusers

    model = randomized(getattr(diffusers, kind)(**settings), seed)
    model.save_pretrained(folder)
    return model


def unet(folder, seed=0, **settings):
    """A UNet of three stages."""
    return denoiser("UNet2DConditionModel", folder, seed, **{**UNET, **settings})


def controlnet(folder, seed=0, **settings):
    """A ControlNet that fits `unet`."""
    shared = {name: value for name, value in UNET.items() if name != "up_block_types"}
    return denoiser("ControlNetModel", folder, seed, **{**shared, **CONTROL, **settings})


def inputs(model, batch, height, width, seed=1):
    """The inputs of a UNet or ControlNet by name, as tensors."""
    random, config = torch.Generator().manual_seed(seed), model.config

    def normal(*shape):
        return torch.randn(*shape, generator=random)

    found = {
        "sample": normal(batch, config.in_channels, height, width),
        "timestep": torch.randint(1000, (batch,), generator=random),
        "encoder_hidden_states": normal(batch, 7, config.cross_attention_dim),
    }
    if config.addition_embed_type:
        sizes = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
        found |= {"text_embeds": normal(batch, sizes), "time_ids": torch.randint(1024, (batch, 6), generator=random)}
    if config.class_embed_type:
        found["class_labels"] = normal(batch, config.projection_class_embeddings_input_dim)
    elif config.num_class_embeds:
        found["class_labels"] = torch.randint(config.num_class_embeds, (batch,), generator=random)
    if config.get("time_cond_proj_dim"):
        found["timestep_cond"] = normal(batch, config.time_cond_proj_dim)
    return found


def predicted(model, feeds, **options):
    """What diffusers computes from `inputs`."""
    added = {name: feeds[name] for name in ("text_embeds", "time_ids") if name in feeds}
    others = {name: item for name, item in feeds.items() if name not in added}
    with torch.no_grad():
        return model(**others, **({"added_cond_kwargs": added} if added else {}), **options)


def arrays(feeds):
    """Tensors as arrays."""
    return {name: item.numpy() for name, item in feeds.items()}


if __name__ == "__main__":
    root = Path(sys.argv[1])
    unet(root / "unet")
    controlnet(root / "controlnet")
    denoiser("AutoencoderKL", root / "autoencoder_kl", **AUTOENCODER)
    denoiser("SD3Transformer2DModel", root / "sd3_transformer", **SD3)
    print(*sorted(path for path in root.iterdir() if path.is_dir()))
