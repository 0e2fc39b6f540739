"""Wuerstchen v2 (Pernias et al. 2023, arXiv:2306.00637): a prior draws 16 channels of semantic latents, a decoder the
latents of a VQ autoencoder. The text encoder is CLIP's, without padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..pipelines.diffusion.cascade import Cascade, cascade_model
from ..pipelines.diffusion.folder_model import ConnectedPipelines
from ..pipelines.diffusion.text_to_image import Config, Encoded, Floats, Inputs, Request, TextEncoder, TextToImage

MEAN, DEVIATION = 42.0, 1.0
"""Mean and deviation of semantic latents, as in pipelines of diffusers."""
PIXELS = 42.67
"""Pixels per semantic latent."""
PATCH = 32
"""Latents along each axis that go with a whole number of semantic latents: 3."""


def _encoder(prefix: str) -> TextEncoder:
    return TextEncoder(f"{prefix}text_encoder", f"{prefix}tokenizer", chunked=False, masked=True)


def of_prior(encoded: Sequence[Encoded | None], request: Request, config: Config) -> Inputs:
    """The prompt's tokens."""
    (text,) = encoded
    assert text is not None
    return {"c": text.states}


def of_decoder(encoded: Sequence[Encoded | None], request: Request, config: Config) -> Inputs:
    """The prompt's tokens; the semantic latents are added."""
    (text,) = encoded
    assert text is not None
    return {"clip": text.states}


def finished(latents: Floats) -> Floats:
    """Semantic latents with their mean and deviation."""
    return latents * np.float32(MEAN) - np.float32(DEVIATION)


def patch(config: Config) -> int:
    """Latents along each axis of which a picture has a multiple."""
    return PATCH


CONNECTED = (ConnectedPipelines("WuerstchenDecoderPipeline", "WuerstchenPriorPipeline", "WuerstchenCombinedPipeline"),)
FOLDER_MODELS = (
    cascade_model(
        Cascade(
            TextToImage(
                "wuerstchen_prior_pipeline",
                "Wuerstchen v2",
                (),
                (_encoder("prior_"),),
                "prior_prior",
                "x",
                of_prior,
                steps=60,
                guidance=4.0,
                times="r",
                scheduler="prior_scheduler",
            ),
            TextToImage(
                "wuerstchen",
                "Wuerstchen v2",
                ("WuerstchenCombinedPipeline",),
                (_encoder(""),),
                "decoder",
                "x",
                of_decoder,
                steps=12,
                guidance=0.0,
                patch=patch,
                times="r",
                sample_size=256,
                autoencoder="vqgan",
            ),
            "effnet",
            PIXELS,
            finished,
        )
    ),
)
