"""A runnable autoencoder with a codebook: pictures become latents or codes, latents become pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....runtime.base.errors import UsageError
from ....runtime.base.out_of_memory import memory_limited
from ..image.autoencoder_model import DECODER, ENCODER, AutoencoderModel

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

QUANTIZER = "quantizer"
"""Name of the graph that finds the nearest entries of the codebook."""
CODES, NEAREST = "codes", "latents_of_codes"


class VQAutoencoder(AutoencoderModel):
    """An autoencoder whose latents have a codebook."""

    @memory_limited
    def encode(self, pixel_values: ArrayLike) -> dict[str, np.ndarray]:
        """``latents`` f32 [batch, latent_channels, height / f, width / f], before the codebook, of pictures f32
        [batch, in_channels, height, width] in 0 .. 1. UsageError for another shape."""
        config, shape = self.options.config, np.shape(pixel_values)
        if config is not None and any(length % config.patch or not length for length in shape[2:]):
            why = f"height and width must be multiples of {config.patch}, not {shape[2:]}"
            raise UsageError("E-RUN-SHAPE", None, why, hint="Resize or crop the pictures")
        return self._run(ENCODER, pixel_values)

    @memory_limited
    def quantize(self, latents: ArrayLike) -> dict[str, np.ndarray]:
        """``latents_of_codes``, the nearest entries of the codebook to latents, and ``codes`` int64 [batch, height,
        width], their indices. UsageError for another shape."""
        return self._run(QUANTIZER, latents)

    @memory_limited
    def decode(self, latents: ArrayLike, *, quantized: bool = False) -> dict[str, np.ndarray]:
        """``sample`` f32 [batch, out_channels, height, width], pictures of latents, or of the nearest entries of the
        codebook if `quantized`. UsageError for another shape."""
        if quantized:
            latents = self._run(QUANTIZER, latents)[NEAREST]
        return self._run(DECODER, latents)
