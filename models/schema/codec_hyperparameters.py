"""Hyper-parameters that audio codecs share, and the names of their graphs."""

from __future__ import annotations

import math

from ...runtime.contract.architecture import Below, Config, Key, Part
from ...runtime.contract.hyperparameter import COUNT, Integer, Listed

AUDIO_CODEC = "audio-codec"
"""Name of the task."""
ENCODER, DECODER = "encoder", "decoder"
"""Names of the graphs."""
LATENTS, QUANTIZED = "latents", "quantized"
"""Names of variants: the encoder without the quantizer, and the quantizer without the decoder."""
SAMPLES, CODES, AUDIO = "input_values", "audio_codes", "audio_values"
"""Inputs and outputs, as Transformers.js names them. Codecs whose quantizers have codes of different lengths have
``audio_codes.0``, ``audio_codes.1`` ..."""
STRIDES = Listed(Integer(1, 1024), 1, 16)
"""Strides of the convolutions of an encoder or decoder, in the order of its layers."""
SAMPLING_RATE = Integer(1, 1 << 20)
"""Samples a second."""
MAX_HOP = 1 << 20
"""Samples of a frame; those of published codecs are fewer than 4,000."""
CODEBOOK = Integer(1, 1 << 20)
"""Vectors of a codebook."""
QUANTIZERS = Integer(1, 1024)
"""Number of codebooks."""


CODEC, CODEC_GRAPHS = "codec", "audio_"
"""A codec inside a model that writes its codes: the name of the part, and how the names of its graphs begin."""


def codec_part(place: str, *weights: Below) -> Part:
    """The codec that a file states in the object `place` of its config.json, if it has the weights; `weights` as of
    `Part`."""
    return Part(None, place, weights, CODEC_GRAPHS, optional=True)


def rate_key(hf: str | tuple[str, ...], default: int) -> Key:
    """The sampling rate."""
    return Key("rate", hf, "sampling_rate", default, SAMPLING_RATE)


def hop_key(strides: str) -> Key:
    """Samples of a frame: the product of the strides of the layers, the parameter `strides`."""

    def product(config: Config) -> int:
        return math.prod(getattr(config, strides))

    return Key("hop", (), (), product, Integer(1, MAX_HOP))


CHANNELS = Key("channels", "audio_channels", "audio_channels", 1, Integer(1, 64))
CODEBOOK_SIZE = Key("codebook_size", "codebook_size", "codebook_size", 1024, CODEBOOK)
CODEBOOK_DIM = Key("codebook_dim", "codebook_dim", "codebook_dim", None, COUNT)
