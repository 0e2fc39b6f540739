"""The decoder of a codec inside a model that writes its codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from .....runtime.base.errors import UsageError
from .....runtime.contract.architecture import RunOptions
from .....runtime.contract.part_rows import part_config
from .....runtime.ir.graph import Graph
from ....schema.codec_hyperparameters import CODEC, CODEC_GRAPHS, DECODER, ENCODER
from ..codec.codec_model import CodecModel


class CodecDecoder:
    """Makes sound of codes.

    Args:
        codec: what decodes them.
        channels: 2 if the codebooks of left and right alternate, and a codec of one channel decodes each.
    """

    def __init__(self, codec: CodecModel, channels: int = 1) -> None:
        self.codec, self.channels = codec, channels

    @property
    def rate(self) -> int:
        """Samples in a second."""
        return self.codec.rate

    @property
    def frame_rate(self) -> float:
        """Frames of codes in a second."""
        return self.codec.frame_rate

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Samples f32 [channels, length] of codes int64 [codebooks, frames]; none for no frames."""
        if not codes.shape[1]:
            return np.zeros((self.channels, 0), np.float32)
        sides = [self.codec.decode(codes[side :: self.channels][None])[0] for side in range(self.channels)]
        return np.concatenate(sides)


def inner_codec(graphs: Mapping[str, Graph], options: RunOptions) -> CodecModel:
    """The codec inside a model, of the model's graphs and options. UsageError for a model without one."""
    inner = {name: graphs[CODEC_GRAPHS + name] for name in (ENCODER, DECODER) if CODEC_GRAPHS + name in graphs}
    if options.config is None or len(inner) < 2:
        path = options.source.files[0] if options.source is not None and options.source.files else None
        why = "the model has no audio decoder: its file lacks the weights of the codec"
        raise UsageError("E-SPEAK-CODEC", path, why, hint="Use the whole checkpoint")
    return CodecModel(inner, replace(options, config=part_config(options.config, CODEC), variant=None))
