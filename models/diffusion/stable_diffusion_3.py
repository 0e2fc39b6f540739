"""Stable Diffusion 3 and 3.5 (Esser et al. 2024, arXiv:2403.03206): two CLIP encoders, and T5 where it is there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..pipelines.diffusion.folder_model import folder_model
from ..pipelines.diffusion.text_to_image import (
    ALL_STATES,
    Config,
    Encoded,
    Inputs,
    Request,
    TextEncoder,
    TextToImage,
    dynamic_shift,
)

T5_TOKENS = 256


def condition(encoded: Sequence[Encoded | None], request: Request, config: Config) -> Inputs:
    """Hidden states of the CLIP encoders side by side, zeros up to the width of T5's, then T5's tokens; the vectors of
    the CLIP encoders side by side."""
    *clip, t5 = encoded
    present = [each for each in clip if each is not None]
    states = np.concatenate([each.states for each in present], -1)
    width = config["text_width"]
    states = np.pad(states, ((0, 0), (0, 0), (0, width - states.shape[-1])))
    tokens = np.zeros((1, T5_TOKENS, width), np.float32) if t5 is None else t5.states
    vectors = [each.vector for each in present if each.vector is not None]
    return {
        "encoder_hidden_states": np.concatenate([states, tokens], 1),
        "pooled_projections": np.concatenate(vectors, -1),
    }


def patch(config: Config) -> int:
    """Latents along each side of a token."""
    return int(config["patch"])


FOLDER_MODELS = (
    folder_model(
        TextToImage(
            "stable_diffusion_3",
            "Stable Diffusion 3",
            ("StableDiffusion3Pipeline", "StableDiffusion3Img2ImgPipeline", "StableDiffusion3InpaintPipeline"),
            (
                TextEncoder("text_encoder", "tokenizer", states=ALL_STATES, layer=-2, vector="text_embeds"),
                TextEncoder("text_encoder_2", "tokenizer_2", states=ALL_STATES, layer=-2, vector="text_embeds"),
                TextEncoder("text_encoder_3", "tokenizer_3", T5_TOKENS, chunked=False, optional=True),
            ),
            "transformer",
            "hidden_states",
            condition,
            steps=28,
            guidance=7.0,
            patch=patch,
            schedule=dynamic_shift,
            rounds_up=True,
        )
    ),
)
