"""Encoders of spectrograms: the input ``input_features`` [batch, bands, frames], f32, and convolutions along time."""

from __future__ import annotations

from ....runtime.ir.graph import Value
from ..encoder import Encoder
from .conv1d import conv1d, kernel

FEATURES = "input_features"


class FeatureEncoder(Encoder):
    """A net with a spectrogram as input, whose frames all attend to each other."""

    def begin(self, bands: int) -> Value:  # type: ignore[override]
        """Declare the input and return it."""
        return self.input(FEATURES, "f32", ("batch_size", bands, "frames"))

    def visible(self) -> Value | None:
        """No mask: every frame attends to every other."""
        return None

    def conv(self, x: Value, name: str, *, stride: int = 1) -> Value:
        """Convolution with ``NAME.weight`` [out, in, width] and ``NAME.bias``, padded by half its width."""
        half = (kernel(self, name).shape[2] - 1) // 2
        return conv1d(self, x, name, stride=stride, pads=(half, half))
