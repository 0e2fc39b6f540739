"""Encoders of samples: the input ``input_values`` [batch, samples], f32, of which convolutions make frames."""

from __future__ import annotations

from ....runtime.ir.graph import Value
from ..encoder import Encoder

SAMPLES = "input_values"


class WaveEncoder(Encoder):
    """A net with samples as input, whose frames all attend to each other.

    Attributes:
        frames: what the convolutions make, [batch, frames, channels]; set by the model.
    """

    frames: Value

    def begin(self) -> Value:  # type: ignore[override]
        """Declare the input; samples as one channel, [batch, 1, samples]."""
        value: Value = self.Unsqueeze(self.input(SAMPLES, "f32", ("batch_size", "samples")), [1])
        return value

    def positions(self) -> Value:
        """Indices of the frames, i64 [frames]."""
        length = self.Squeeze(self.Shape(self.frames, start=1, end=2))
        found: Value = self.Range(self.Constant(value_int=0), length, self.Constant(value_int=1))
        return found

    def token_positions(self) -> Value:
        """Index of each frame, i64 [batch, frames]."""
        places = self.once("places", lambda: self.Unsqueeze(self.positions(), [0]))
        return self.once("places_of_all", lambda: self.Expand(places, self.Shape(self.frames, end=2)))

    def visible(self) -> Value | None:
        """No mask: every frame attends to every other."""
        return None
