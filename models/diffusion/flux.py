"""FLUX.1 (Black Forest Labs 2024), dev and schnell: T5's tokens, and one vector of CLIP's encoder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..pipelines.diffusion.folder_model import folder_model
from ..pipelines.diffusion.text_to_image import (
    PATCH,
    Config,
    Encoded,
    Floats,
    Inputs,
    Request,
    TextEncoder,
    TextToImage,
    even_steps,
    fixed_patch,
)


def condition(encoded: Sequence[Encoded | None], request: Request, config: Config) -> Inputs:
    """T5's tokens, CLIP's vector, positions of both, and the scale of guidance for models distilled for it."""
    clip, t5 = encoded
    assert clip is not None
    assert clip.vector is not None
    assert t5 is not None
    rows, columns = np.indices((request.rows // PATCH, request.columns // PATCH)).reshape(2, -1)
    found = {
        "encoder_hidden_states": t5.states,
        "pooled_projections": clip.vector,
        "txt_ids": np.zeros((t5.states.shape[1], 3), np.float32),
        "img_ids": np.stack([np.zeros_like(rows), rows, columns], -1).astype(np.float32),
    }
    return found | ({"guidance": np.array([request.guidance], np.float32)} if config["guidance"] else {})


def pack(latents: Floats) -> Floats:
    """Latents [batch, channels, rows, columns] as tokens [batch, rows x columns / 4, 4 x channels]."""
    batch, channels, rows, columns = latents.shape
    blocks = latents.reshape(batch, channels, rows // PATCH, PATCH, columns // PATCH, PATCH)
    return blocks.transpose(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * PATCH * PATCH)


def unpack(tokens: Floats, rows: int, columns: int) -> Floats:
    """The inverse of `pack`."""
    batch = len(tokens)
    blocks = tokens.reshape(batch, rows // PATCH, columns // PATCH, -1, PATCH, PATCH)
    return blocks.transpose(0, 3, 1, 4, 2, 5).reshape(batch, -1, rows, columns)


def never(config: Config) -> bool:
    """Guidance is an input of the denoiser."""
    return False


def thousandths(timestep: float) -> float:
    """The time that the denoiser takes, 1 for noise and 0 for a picture."""
    return timestep / 1000


FOLDER_MODELS = (
    folder_model(
        TextToImage(
            "flux",
            "FLUX.1",
            ("FluxPipeline", "FluxImg2ImgPipeline", "FluxInpaintPipeline"),
            (
                TextEncoder("text_encoder", "tokenizer", vector="pooler_output", chunked=False),
                TextEncoder("text_encoder_2", "tokenizer_2", 512, chunked=False),
            ),
            "transformer",
            "hidden_states",
            condition,
            steps=28,
            guidance=3.5,
            patch=fixed_patch,
            schedule=even_steps,
            guided=never,
            unbatched=("txt_ids", "img_ids"),
            pack=pack,
            unpack=unpack,
            clock=thousandths,
            sample_size=128,
            rounds_up=True,
        )
    ),
)
