"""Single files of Stable Diffusion 1, 2, XL, 3 and FLUX.1: the names of their authors' code, with text encoders as
Stability AI and ComfyUI store them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import HF, ORIGINAL
from ..pipelines.diffusion.picture_gguf import PictureGguf
from ..pipelines.diffusion.single_file import Config, FilePart, SingleFile
from ..schema.clip.vocabulary import END, OPEN_CLIP_PAD
from ..schema.diffusion import autoencoder_names, unet_names
from ..schema.diffusion.clip_names import (
    BLOCK,
    PROJECTION,
    clip_config,
    clip_settings,
    open_clip_config,
    with_projection,
)
from ..schema.diffusion.t5_names import t5_config, t5_settings
from ..schema.diffusion.unet_stages import unet_settings

UNET = FilePart(
    "model.diffusion_model.",
    unet_names.unet_config,
    modules=unet_names.unet_modules,
    stated=unet_names.bound_modules,
    settings=unet_settings,
)
SCALING, XL_SCALING = 0.18215, 0.13025
"""Factors of latents."""


def autoencoder(scaling: float, shift: float | None = None, prefix: str = "first_stage_model.") -> FilePart:
    """The autoencoder, whose latents are scaled and shifted."""
    return FilePart(
        prefix,
        functools.partial(autoencoder_names.autoencoder_config, scaling=scaling, shift=shift),
        modules=autoencoder_names.autoencoder_modules,
        stated=autoencoder_names.bound_modules,
        matrices=autoencoder_names.ATTENDED,
        settings=autoencoder_names.autoencoder_settings,
    )


def scheduler(configs: Mapping[str, Config]) -> dict[str, Any]:
    """DDIM over the betas of Stable Diffusion; 2 predicts the velocity, as its larger checkpoints do."""
    second = configs["unet"]["use_linear_projection"] and "addition_embed_type" not in configs["unet"]
    return {
        "_class_name": "DDIMScheduler",
        "beta_start": 0.00085,
        "beta_end": 0.012,
        "beta_schedule": "scaled_linear",
        "num_train_timesteps": 1000,
        "clip_sample": False,
        "set_alpha_to_one": False,
        "steps_offset": 1,
        "prediction_type": "v_prediction" if second else "epsilon",
    }


def xl_scheduler(configs: Mapping[str, Config]) -> dict[str, Any]:
    """Euler's method, as the configuration of XL has it."""
    return {**scheduler(configs), "_class_name": "EulerDiscreteScheduler", "timestep_spacing": "leading"}


def flow_scheduler(configs: Mapping[str, Config]) -> dict[str, Any]:
    """Flow matching as the configuration of Stable Diffusion 3 has it."""
    return {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 3.0}


def flux_scheduler(configs: Mapping[str, Config]) -> dict[str, Any]:
    """Flow matching as the configurations of FLUX.1 have it: dev, which takes the guidance, shifts by the number of
    tokens."""
    if not configs["transformer"]["guidance_embeds"]:
        return {**flow_scheduler(configs), "shift": 1.0}
    ends = {"base_image_seq_len": 256, "max_image_seq_len": 4096, "base_shift": 0.5, "max_shift": 1.15}
    return {**flow_scheduler(configs), "use_dynamic_shifting": True, **ends}


def implied_config(weights: Any) -> dict[str, Any]:
    """Nothing besides what the weights of a transformer imply."""
    return {}


def sd3_settings(config: Any) -> dict[str, Any]:
    """Hyper-parameters that Stable Diffusion 3's weights do not show, by the keys of config.json."""
    return {"attention_head_dim": config.head_dim}


def flux_settings(config: Any) -> dict[str, Any]:
    """Hyper-parameters that FLUX.1's weights do not show, by the keys of config.json."""
    return {"axes_dims_rope": config.axes, "patch_size": config.patch}


def plain_clip_config(weights: Any) -> dict[str, Any]:
    """The first encoder of FLUX.1, which uses no projection."""
    return {**clip_config(weights), "architectures": ["CLIPTextModel"]}


def unprojected(name: str, config: Config) -> bool:
    """Whether FLUX.1 uses a weight of its first encoder."""
    return name != PROJECTION


def second_config(weights: Any) -> dict[str, Any]:
    """The encoder of Stable Diffusion 2: that of OpenCLIP without its last layer and its projection, which files that
    were made of diffusers' folders lack."""
    config = open_clip_config(weights)
    layers = config["num_hidden_layers"] - ("text_projection" in weights)
    return {**config, "architectures": ["CLIPTextModel"], "num_hidden_layers": layers}


def in_second(name: str, config: Config) -> bool:
    """Whether Stable Diffusion 2 uses a weight of its encoder."""
    if name.startswith(BLOCK):
        return int(name.removeprefix(BLOCK).split(".")[0]) < config["num_hidden_layers"]
    return name not in ("text_projection", "logit_scale")


def in_xl_second(name: str, config: Config) -> bool:
    """Whether XL uses a weight of its second encoder."""
    return name != "logit_scale"


def is_openai(config: Config) -> bool:
    """Whether a text encoder is OpenAI's, which Stable Diffusion 1 has."""
    return config.get("hidden_act", "quick_gelu") == "quick_gelu"


def is_open_clip(config: Config) -> bool:
    """Whether a text encoder is OpenCLIP's, which Stable Diffusion 2 has."""
    return not is_openai(config)


def is_first(config: Any) -> bool:
    """Whether a UNet is that of Stable Diffusion 1 or 2, which has no sizes of pictures as inputs."""
    return not config.addition


def is_xl(config: Any) -> bool:
    """Whether a UNet is that of XL."""
    return not is_first(config)


PICTURE_GGUF = (
    PictureGguf("sd1", "unet_2d_condition", UNET, is_first),
    PictureGguf("sdxl", "unet_2d_condition", UNET, is_xl),
)
FIRST, SECOND = "cond_stage_model.transformer.", "cond_stage_model.model."
XL_FIRST, XL_SECOND = "conditioner.embedders.0.transformer.", "conditioner.embedders.1.model."
INPUT = "model.diffusion_model.input_blocks.0.0.weight"
IGNORED = (
    "model_ema.",
    "betas",
    "alphas_",
    "sqrt_",
    "log_one_",
    "posterior_",
    "logvar",
    "cond_stage_model.logit_scale",
)
OPENAI_ENCODER = functools.partial(FilePart, config=clip_config, names=HF, suits=is_openai, settings=clip_settings)
OPEN_CLIP = functools.partial(FilePart, names=ORIGINAL, suits=is_open_clip, settings=clip_settings)
TRANSFORMER = functools.partial(FilePart, UNET.prefix, implied_config, names=ORIGINAL)
CLIP_L, CLIP_G = "text_encoders.clip_l.transformer.", "text_encoders.clip_g.transformer."
CLIP_EMBEDDING = "text_model.embeddings.token_embedding.weight"
T5 = FilePart("text_encoders.t5xxl.transformer.", t5_config, names=HF, settings=t5_settings)
SCALES = tuple(f"text_encoders.{name}.logit_scale" for name in ("clip_l", "clip_g", "t5xxl"))
"""Of ComfyUI's files, without use."""
SINGLE_FILES = (
    SingleFile(
        "Stable Diffusion 1",
        "StableDiffusionPipeline",
        (INPUT, f"{FIRST}text_model.embeddings.token_embedding.weight"),
        {"text_encoder": OPENAI_ENCODER(FIRST), "unet": UNET, "vae": autoencoder(SCALING)},
        scheduler,
        {"tokenizer": END},
        IGNORED,
    ),
    SingleFile(
        "Stable Diffusion 2",
        "StableDiffusionPipeline",
        (INPUT, f"{SECOND}token_embedding.weight"),
        {
            "text_encoder": OPEN_CLIP(SECOND, config=second_config, kept=in_second),
            "unet": UNET,
            "vae": autoencoder(SCALING),
        },
        scheduler,
        {"tokenizer": OPEN_CLIP_PAD},
        IGNORED,
    ),
    SingleFile(
        "Stable Diffusion XL",
        "StableDiffusionXLPipeline",
        (INPUT, f"{XL_FIRST}text_model.embeddings.token_embedding.weight", f"{XL_SECOND}token_embedding.weight"),
        {
            "text_encoder": OPENAI_ENCODER(XL_FIRST),
            "text_encoder_2": OPEN_CLIP(XL_SECOND, config=open_clip_config, kept=in_xl_second),
            "unet": UNET,
            "vae": autoencoder(XL_SCALING),
        },
        xl_scheduler,
        {"tokenizer": END, "tokenizer_2": OPEN_CLIP_PAD},
        IGNORED,
    ),
    SingleFile(
        "Stable Diffusion 3",
        "StableDiffusion3Pipeline",
        (f"{UNET.prefix}joint_blocks.0.x_block.attn.qkv.weight", f"{CLIP_G}{CLIP_EMBEDDING}"),
        {
            "text_encoder": OPENAI_ENCODER(CLIP_L, completed=with_projection),
            "text_encoder_2": FilePart(
                CLIP_G, functools.partial(clip_config, act="gelu"), names=HF, suits=is_open_clip, settings=clip_settings
            ),
            "text_encoder_3": dataclasses.replace(T5, optional=True),
            "transformer": TRANSFORMER(settings=sd3_settings),
            "vae": autoencoder(1.5305, 0.0609),
        },
        flow_scheduler,
        {"tokenizer": END, "tokenizer_2": OPEN_CLIP_PAD, "tokenizer_3": None},
        SCALES,
    ),
    SingleFile(
        "FLUX.1",
        "FluxPipeline",
        (f"{UNET.prefix}double_blocks.0.img_attn.qkv.weight", f"{CLIP_L}{CLIP_EMBEDDING}"),
        {
            "text_encoder": OPENAI_ENCODER(CLIP_L, config=plain_clip_config, kept=unprojected),
            "text_encoder_2": T5,
            "transformer": TRANSFORMER(settings=flux_settings),
            "vae": autoencoder(0.3611, 0.1159, "vae."),
        },
        flux_scheduler,
        {"tokenizer": END, "tokenizer_2": None},
        SCALES,
    ),
)
