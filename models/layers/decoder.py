"""What decoders have around their layers: token ids, positions, masks, a cache, and what comes out.

A decoder has the inputs ``input_ids`` [batch, length], ``attention_mask`` [batch, total] (1 for tokens, 0 for padding) and ``position_ids``
[batch, length], and for each state ``past_NAME`` and ``present_NAME`` (``past_key_values.0.key`` and ``present.0.key``, as exporters to ONNX
name them). There are two kinds of cache:

- growing: a run appends its keys and values to those of the past; total = past + length. This is what exported models have.
- fixed: the cache has room for total tokens, and a run writes from the place ``cache_position`` (a number) on. Shapes stay the same from token
  to token, so that one plan serves them all. Layers with a window have a ring instead (`window`), which is as long as what they can see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...runtime.arch import Config
from ...runtime.graph import Dim, Graph, Value
from ...runtime.tensor import Tensor
from .linear import embedding, head, linear
from .net import Net
from .window import ring

if TYPE_CHECKING:
    Norm = Callable[[Net, Value, str], Value]

PLACE = "cache_position"
LAST = "last_logits"
"""The logits of the last token alone, for those who generate, beside the logits of all tokens; only with a fixed cache."""
LENGTH, PAST, TOTAL = "sequence_length", "past_sequence_length", "total_sequence_length"
"""Symbolic lengths: of this run's tokens, of those in a growing cache, of both."""


class Decoder(Net):
    """A net with a decoder's inputs.

    Args:
        fixed: whether the cache is fixed or grows.
    """

    def __init__(self, graph: Graph, config: Config, weights: Mapping[str, Tensor], *, fixed: bool = False) -> None:
        super().__init__(graph, config, weights)
        self.fixed = fixed
        self._states: list[tuple[str, Value]] = []
        self._rings: dict[int, Value] = {}

    def begin(self, embed: str = "embed") -> Value:
        """Declare the inputs; the tokens' embeddings [batch, length, hidden]."""
        self.ids = self.input("input_ids", "i64", ("batch_size", LENGTH))
        self.mask = self.input("attention_mask", "i64", ("batch_size", TOTAL))
        self.positions = self.input("position_ids", "i64", ("batch_size", LENGTH))
        if self.fixed:
            self.place = self.input(PLACE, "i64", ())
        return embedding(self, self.ids, embed)

    def past(self, name: str, shape: tuple[Dim, ...]) -> Value:
        """A state of the model before this run: ``past_NAME``. It starts as zeros, of no length where its length is `PAST`."""
        return self.input(f"past_{name}", "f32", ("batch_size", *shape))

    def cached(self, name: str, new: Value, heads: int, size: int, window: int | None = None) -> Value:
        """Keys or values [batch, heads, total, size], of the past and of this run ([batch, length, heads x size]).

        In a fixed cache those that are only seen within a window are a ring.
        """
        new = self.Transpose(self.heads_apart(new, heads, size), perm=[0, 2, 1, 3])
        if self.fixed:
            past = self.past(name, (heads, TOTAL if window is None else ring(window), size))
            places = self.once("places", lambda: self.Expand(self.place, self.Shape(self.ids, start=0, end=1)))
            whole = self.TensorScatter(past, new, places, axis=2, mode="linear" if window is None else "circular")
            if window is not None:
                self._rings.setdefault(window, whole)
        else:
            whole = self.Concat(self.past(name, (heads, PAST, size)), new, axis=2)
        self.present(name, whole)
        return whole

    def present(self, name: str, value: Value) -> None:
        """The same state after this run."""
        self._states.append((f"present{name.removeprefix('key_values')}" if name.startswith("key_values") else f"present_{name}", value))

    def end(self, x: Value, norm: Norm | None, *, tied: str = "embed", change: Callable[[Value], Value] | None = None) -> None:
        """The last norm, and by the model's task logits [batch, length, vocabulary], classes [batch, labels] or hidden states."""
        x = norm(self, x, "norm") if norm else x
        task = self.config.task
        if task == "hidden":
            self.output("last_hidden_state", x)
        elif task == "classification":
            self.output("logits", self._last(linear(self, x, "classifier")))
        else:
            for name, rows in (("logits", x), *([(LAST, self.Slice(x, [-1], [2**62], [1]))] if self.fixed else [])):
                logits = head(self, rows, tied=tied)
                self.output(name, change(logits) if change else logits)
        for name, value in self._states:
            self.output(name, value)

    def own(self) -> Value:
        """The mask of this run's tokens, i64 [batch, length]."""
        return self.once("own", self._own)

    def _own(self) -> Value:
        length = self.Shape(self.ids, start=1, end=2)
        if self.fixed:
            numbers = self.Range(self.Constant(value_int=0), self.Squeeze(length), self.Constant(value_int=1))
            mask: Value = self.Gather(self.mask, self.Add(numbers, self.place), axis=1)  # a slice from a place would have no known length
        else:
            mask = self.Slice(self.mask, self.Neg(length), [2**62], [1])
        return mask

    def _last(self, classes: Value) -> Value:
        """The row of the last token of each sequence that is neither padding by the mask nor the padding token."""
        length = self.Shape(self.ids, start=1, end=2)
        one = self.Constant(value_int=1)
        numbers = self.Range(one, self.Add(self.Squeeze(length), one), one)
        seen, pad = self.own(), self.config.values.get("pad")
        if pad is not None:
            seen = self.Mul(seen, self.Cast(self.Not(self.Equal(self.ids, self.Constant(value_int=pad))), to=7))
        last = self.ArgMax(self.Mul(seen, numbers), axis=1, keepdims=1)
        rows: Value = self.GatherND(classes, last, batch_dims=1)
        return rows

    def visible(self, window: int | None = None) -> Value:
        """Which keys each query may look at: bool [batch, 1, length, total]; at most `window` back, itself included.

        Where keys lie in a ring, the keys of the window's layers have to be `cached` first.
        """
        return self.once(("visible", window), lambda: self._in_ring(window) if window in self._rings else self._visible(window))

    def _visible(self, window: int | None) -> Value:
        query, key = self._queries(), self.once("keys", lambda: self._numbers(self.Shape(self.mask, start=1, end=2)))
        return self._seen(query, key, window, self.GreaterOrEqual(query, key), self.mask)

    def _in_ring(self, window: int) -> Value:
        """A slot holds the last token whose number has that remainder, which is negative where there is none yet."""
        query, length = self._queries(), self.Shape(self._rings[window], start=2, end=3)
        last = self.Sub(self.Add(self.place, self.Squeeze(self.Shape(self.ids, start=1, end=2))), 1)
        key = self.Sub(last, self.Mod(self.Sub(last, self._numbers(length)), length))
        written = self.GreaterOrEqual(key, self.Constant(value_int=0))
        mask = self.Gather(self.mask, self.Squeeze(self.Max(key, self.Constant(value_int=0)), [0]), axis=1)
        return self._seen(query, key, window, self.And(self.GreaterOrEqual(query, key), written), mask)

    def _queries(self) -> Value:
        """Numbers of this run's tokens, padding included, [length, 1]."""
        return self.once("queries", self._placed)

    def _placed(self) -> Value:
        length = self.Shape(self.ids, start=1, end=2)
        past = self.place if self.fixed else self.Sub(self.Shape(self.mask, start=1, end=2), length)
        return self.Add(self.Transpose(self._numbers(length)), past)

    def _numbers(self, count: Value) -> Value:
        """0, 1, 2 ... below a number [1], as [1, number]."""
        return self.Unsqueeze(self.Range(self.Constant(value_int=0), self.Squeeze(count), self.Constant(value_int=1)), [0])

    def _seen(self, query: Value, key: Value, window: int | None, before: Value, mask: Value) -> Value:
        """What is `before` a query, within its window, and no padding; padding sees itself, so that its rows stay finite."""
        if window is not None:
            before = self.And(before, self.Less(self.Sub(query, key), [window]))
        tokens = self.Unsqueeze(self.Cast(mask, to=9), [1, 2])
        own: Value = self.Or(self.And(before, tokens), self.Equal(query, key))
        return own
