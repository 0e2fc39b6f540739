"""Stable Diffusion 1 and 2 (Rombach et al. 2022, arXiv:2112.10752) and XL (Podell et al. 2023, arXiv:2307.01952)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..pipelines.diffusion.folder_model import folder_model
from ..pipelines.diffusion.text_to_image import ALL_STATES, Config, Encoded, Inputs, Request, TextEncoder, TextToImage

STATES = "encoder_hidden_states"
CLIP_L = TextEncoder("text_encoder", "tokenizer")


def condition(encoded: Sequence[Encoded | None], request: Request, config: Config) -> Inputs:
    """The hidden states of the text, and the scale of guidance for models that were distilled for it."""
    (text,) = encoded
    assert text is not None
    return {STATES: text.states, **distilled(request, config)}


def distilled(request: Request, config: Config) -> Inputs:
    """The scale of guidance less 1, as sines and cosines, for latent consistency models (Luo et al. 2023,
    arXiv:2310.04378)."""
    width = config["guidance_width"]
    if width is None:
        return {}
    half = width // 2
    frequencies = np.exp(-np.log(10000.0) / (half - 1) * np.arange(half)).astype(np.float32)
    angles = np.float32(1000 * (request.guidance - 1)) * frequencies
    return {"timestep_cond": np.concatenate([np.sin(angles), np.cos(angles)])[None]}


def guided(config: Config) -> bool:
    """Whether the denoiser does not know the scale of guidance."""
    return config["guidance_width"] is None


def xl_condition(encoded: Sequence[Encoded | None], request: Request, config: Config) -> Inputs:
    """Hidden states of both encoders side by side, the vector of the second, and sizes: those of the picture before
    cropping, the corner of the crop, and those after."""
    present = [each for each in encoded if each is not None]
    vector = present[-1].vector
    assert vector is not None
    size = request.height, request.width
    sizes = np.array([[*size, 0, 0, *size]], np.float32)
    return {
        STATES: np.concatenate([each.states for each in present], -1),
        "text_embeds": vector,
        "time_ids": sizes,
        **distilled(request, config),
    }


FOLDER_MODELS = (
    folder_model(
        TextToImage(
            "stable_diffusion",
            "Stable Diffusion",
            (
                "StableDiffusionPipeline",
                "StableDiffusionInpaintPipeline",
                "StableDiffusionImg2ImgPipeline",
                "StableDiffusionControlNetPipeline",
                "LatentConsistencyModelPipeline",
            ),
            (CLIP_L,),
            "unet",
            "sample",
            condition,
            steps=50,
            guidance=7.5,
            guided=guided,
        )
    ),
    folder_model(
        TextToImage(
            "stable_diffusion_xl",
            "Stable Diffusion XL",
            (
                "StableDiffusionXLPipeline",
                "StableDiffusionXLImg2ImgPipeline",
                "StableDiffusionXLInpaintPipeline",
                "StableDiffusionXLControlNetPipeline",
            ),
            (
                TextEncoder("text_encoder", "tokenizer", states=ALL_STATES, layer=-2),
                TextEncoder("text_encoder_2", "tokenizer_2", states=ALL_STATES, layer=-2, vector="text_embeds"),
            ),
            "unet",
            "sample",
            xl_condition,
            steps=50,
            guidance=5.0,
            zero_negative=True,
            kept_in_negative=("time_ids",),
            guided=guided,
        )
    ),
)
