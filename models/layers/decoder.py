"""What decoders have around their layers: token ids, positions, masks, a cache, and what comes out.

A decoder has the inputs ``input_ids`` [batch, length], ``attention_mask`` [batch, past + length] (1 for tokens, 0 for padding) and
``position_ids`` [batch, length], and for each state ``past_NAME`` and ``present_NAME``, as ONNX exporters name them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...runtime.graph import Dim, Value
from .linear import embedding, head, linear
from .net import Net

if TYPE_CHECKING:
    Norm = Callable[[Net, Value, str], Value]

LENGTH, PAST, TOTAL = "sequence_length", "past_sequence_length", "total_sequence_length"
"""Symbolic lengths: of this run's tokens, of those in the cache, of both."""


class Decoder(Net):
    """A net with a decoder's inputs."""

    def begin(self, embed: str = "embed") -> Value:
        """Declare the inputs; the tokens' embeddings [batch, length, hidden]."""
        self.ids = self.input("input_ids", "i64", ("batch_size", LENGTH))
        self.mask = self.input("attention_mask", "i64", ("batch_size", TOTAL))
        self.positions = self.input("position_ids", "i64", ("batch_size", LENGTH))
        return embedding(self, self.ids, embed)

    def past(self, name: str, shape: tuple[Dim, ...]) -> Value:
        """A state of the model before this run: ``past_NAME``. It starts as zeros, of no length where its length is `PAST`."""
        return self.input(f"past_{name}", "f32", ("batch_size", *shape))

    def present(self, name: str, value: Value) -> None:
        """The same state after this run."""
        self._states = [*getattr(self, "_states", []), (f"present_{name}", value)]

    def end(self, x: Value, norm: Norm | None, *, tied: str = "embed", change: Callable[[Value], Value] | None = None) -> None:
        """The last norm, and by the model's task logits [batch, length, vocabulary], classes [batch, labels] or hidden states."""
        x = norm(self, x, "norm") if norm else x
        task = self.config.task
        if task == "hidden":
            self.output("last_hidden_state", x)
        elif task == "classification":
            self.output("logits", self._last(linear(self, x, "classifier")))
        else:
            logits = head(self, x, tied=tied)
            self.output("logits", change(logits) if change else logits)
        for name, value in getattr(self, "_states", []):
            self.output(name, value)

    def _last(self, classes: Value) -> Value:
        """The row of the last token of each sequence."""
        mask = self.Cast(self.mask, to=7)
        length = self.Shape(self.ids, start=1, end=2)
        own = self.Slice(mask, self.Neg(length), [2**62], [1])
        one = self.Constant(value_int=1)
        numbers = self.Range(one, self.Add(self.Squeeze(length), one), one)
        last = self.ArgMax(self.Mul(own, numbers), axis=1, keepdims=1)
        rows: Value = self.GatherND(classes, last, batch_dims=1)
        return rows

    def visible(self, window: int | None = None) -> Value:
        """Which keys each query may look at: bool [batch, 1, length, total]; at most `window` back, itself included."""
        return self.once(("visible", window), lambda: self._visible(window))

    def slots(self) -> tuple[Value, Value]:
        """Places of queries [length, 1] and of keys [1, total] in the cache."""
        return self.once("slots", self._slots)

    def _slots(self) -> tuple[Value, Value]:
        zero, one = self.Constant(value_int=0), self.Constant(value_int=1)
        total = self.Squeeze(self.Shape(self.mask, start=1, end=2))
        past = self.Sub(total, self.Squeeze(self.Shape(self.ids, start=1, end=2)))
        return self.Unsqueeze(self.Range(past, total, one), [1]), self.Unsqueeze(self.Range(zero, total, one), [0])

    def _visible(self, window: int | None) -> Value:
        query, key = self.slots()
        seen = self.GreaterOrEqual(query, key)
        if window is not None:
            seen = self.And(seen, self.Less(self.Sub(query, key), [window]))
        tokens = self.Unsqueeze(self.Cast(self.mask, to=9), [1, 2])
        own: Value = self.Or(self.And(seen, tokens), self.Equal(query, key))  # padding sees itself, so that its rows stay finite
        return own
