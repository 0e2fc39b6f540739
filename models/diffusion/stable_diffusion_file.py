"""Single files of Stable Diffusion 1, 2 and XL: the names of CompVis' and Stability AI's code."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ..pipelines.diffusion.picture_gguf import PictureGguf
from ..pipelines.diffusion.single_file import Config, FilePart, SingleFile
from ..schema.diffusion import autoencoder_names, unet_names
from ..schema.diffusion.clip_names import BLOCK, clip_config, open_clip_config
from ..schema.diffusion.module_names import Pair
from ..schema.diffusion.unet_stages import unet_settings

UNET = FilePart("model.diffusion_model.", unet_names.unet_config, unet_names.unet_modules, unet_names.stated_modules)
SCALING, XL_SCALING = 0.18215, 0.13025
"""Factors of latents."""


def autoencoder(scaling: float, shift: float | None = None) -> FilePart:
    """The autoencoder, whose latents are scaled and shifted."""
    return FilePart(
        "first_stage_model.",
        functools.partial(autoencoder_names.autoencoder_config, scaling=scaling, shift=shift),
        autoencoder_names.autoencoder_modules,
        autoencoder_names.stated_modules,
        autoencoder_names.ATTENDED,
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


def second_config(weights: Any) -> dict[str, Any]:
    """The encoder of Stable Diffusion 2: that of OpenCLIP without its last layer and its projection."""
    config = open_clip_config(weights)
    layers = config["num_hidden_layers"] - 1
    return {**config, "architectures": ["CLIPTextModel"], "num_hidden_layers": layers}


def in_second(name: str, config: Config) -> bool:
    """Whether Stable Diffusion 2 uses a weight of its encoder."""
    if name.startswith(BLOCK):
        return int(name.removeprefix(BLOCK).split(".")[0]) < config["num_hidden_layers"]
    return name not in ("text_projection", "logit_scale")


def in_xl_second(name: str, config: Config) -> bool:
    """Whether XL uses a weight of its second encoder."""
    return name != "logit_scale"


def clip_modules(config: Config) -> list[Pair]:
    """Modules of text encoders as transformers 5 names them."""
    return [(f"text_model.{name}", name) for name in ("embeddings", "encoder", "final_layer_norm")]


def is_openai(config: Config) -> bool:
    """Whether a text encoder is OpenAI's, which Stable Diffusion 1 has."""
    return config.get("hidden_act", "quick_gelu") == "quick_gelu"


def never(config: Config) -> bool:
    """OpenCLIP's names are only read."""
    return False


def _index(kind: str, *encoders: str) -> dict[str, Any]:
    return {
        "_class_name": kind,
        "scheduler": ["diffusers", "DDIMScheduler"],
        **{name: ["transformers", "CLIPTextModel"] for name in encoders},
        **{name.replace("text_encoder", "tokenizer"): ["transformers", "CLIPTokenizer"] for name in encoders},
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }


def is_first(config: Any) -> bool:
    """Whether a UNet is that of Stable Diffusion 1 or 2, which has no sizes of pictures as inputs."""
    return not config.addition


def is_xl(config: Any) -> bool:
    """Whether a UNet is that of XL."""
    return not is_first(config)


PICTURE_GGUF = (
    PictureGguf("sd1", "unet_2d_condition", UNET, is_first, unet_names.bound_modules, unet_settings),
    PictureGguf("sdxl", "unet_2d_condition", UNET, is_xl, unet_names.bound_modules, unet_settings),
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
SINGLE_FILES = (
    SingleFile(
        "Stable Diffusion 1",
        (INPUT, f"{FIRST}text_model.embeddings.token_embedding.weight"),
        _index("StableDiffusionPipeline", "text_encoder"),
        {
            "text_encoder": FilePart(FIRST, clip_config, stated=clip_modules, suits=is_openai),
            "unet": UNET,
            "vae": autoencoder(SCALING),
        },
        scheduler,
        ignored=IGNORED,
    ),
    SingleFile(
        "Stable Diffusion 2",
        (INPUT, f"{SECOND}token_embedding.weight"),
        _index("StableDiffusionPipeline", "text_encoder"),
        {
            "text_encoder": FilePart(SECOND, second_config, kept=in_second, suits=never),
            "unet": UNET,
            "vae": autoencoder(SCALING),
        },
        scheduler,
        ignored=IGNORED,
    ),
    SingleFile(
        "Stable Diffusion XL",
        (INPUT, f"{XL_FIRST}text_model.embeddings.token_embedding.weight", f"{XL_SECOND}token_embedding.weight"),
        _index("StableDiffusionXLPipeline", "text_encoder", "text_encoder_2"),
        {
            "text_encoder": FilePart(XL_FIRST, clip_config),
            "text_encoder_2": FilePart(
                XL_SECOND, open_clip_config, kept=lambda name, config: name != "logit_scale", suits=never
            ),
            "unet": UNET,
            "vae": autoencoder(XL_SCALING),
        },
        xl_scheduler,
        ignored=IGNORED,
    ),
)
