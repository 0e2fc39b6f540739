"""Z-Image (Alibaba 2025, arXiv:2511.22699): the prompt is a user's message to Qwen 3, and the transformer takes what
enters the last layer."""

from __future__ import annotations

from collections.abc import Sequence

from ..pipelines.diffusion.folder_model import folder_model
from ..pipelines.diffusion.text_to_image import (
    PENULTIMATE,
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
    """The states of the prompt's tokens."""
    (caption,) = encoded
    assert caption is not None
    return {"cap_feats": caption.states}


def clock(timestep: float) -> float:
    """The time that the transformer takes, 0 for noise and 1 for a picture."""
    return (1000 - timestep) / 1000


def pack(latents: Floats) -> Floats:
    """Latents [batch, channels, rows, columns] as those of one frame, [batch, channels, 1, rows, columns]."""
    return latents[:, :, None]


def unpack(sample: Floats, rows: int, columns: int) -> Floats:
    """The velocity from a picture to noise, of one towards a picture."""
    return -sample[:, :, 0]


FOLDER_MODELS = (
    folder_model(
        TextToImage(
            "z_image",
            "Z-Image",
            ("ZImagePipeline", "ZImageImg2ImgPipeline", "ZImageInpaintPipeline"),
            (TextEncoder("text_encoder", "tokenizer", 512, PENULTIMATE, chunked=False, padded=False, chat=True),),
            "transformer",
            "x",
            condition,
            steps=50,
            guidance=5.0,
            patch=fixed_patch,
            schedule=even_steps,
            pack=pack,
            unpack=unpack,
            times="t",
            clock=clock,
            unguided=0.0,
            sample_size=128,
            rounds_up=True,
        )
    ),
)
