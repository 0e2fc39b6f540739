"""Inputs and outputs of decoders: token ids, positions, attention mask, KV cache and logits.

A decoder has the inputs ``input_ids`` [batch, length], ``attention_mask`` [batch, total] (1 for tokens, 0 for padding)
and ``position_ids`` [batch, length], and for each state ``past_NAME`` and ``present_NAME`` (``past_key_values.0.key``
and ``present.0.key``, as exporters to ONNX name them). A decoder inside a multimodal model has ``inputs_embeds``
[batch, length, hidden] in place of the ids, and ``position_ids`` [axes, batch, length] where each pair of rotated
elements has the position of one of several axes (time, height and width of a picture). Where the hyper-parameter
`token_groups` is true, its mask has one more meaning: tokens of one value above 1 form a group, such as those of a
picture, and attend to each other whatever their order. Where `token_prefix` is true as well, those of value 1 are a
group in a run of an exported model without a past, since other runtimes know no groups; -1 is a token without one.
There are two kinds of KV cache:

- growing: a run appends its keys and values to those of the past; total = past + length. Exported models have this.
- fixed: the cache has capacity for total tokens, and a run writes from index ``cache_position`` [batch] of each row on.
  Shapes stay the same from token to token, so one plan serves them all. Sliding-window layers use a ring buffer instead
  (`sliding_window`), as long as what they attend to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import (
    FEATURE_EXTRACTION,
    TEXT_CLASSIFICATION,
    TEXT_GENERATION,
    TEXT_RANKING,
    Config,
)
from ...runtime.ir.graph import Dim, Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from .linear import embedding, head, linear
from .net import Net
from .sliding_window import ring_dim

if TYPE_CHECKING:
    Norm = Callable[[Net, Value, str], Value]
    Limit = Callable[[Value, Value], Value]

CACHE_POSITION, EMBEDS = "cache_position", "inputs_embeds"
DEEPSTACK = "deepstack_features"
"""Inputs that are added after the first layers: features of a picture by further layers of its encoder."""
LAST = "last_logits"
"""Logits of the last token only, for generation, in addition to the logits of all tokens; fixed caches only."""
LENGTH, PAST, TOTAL = "sequence_length", "past_sequence_length", "total_sequence_length"
"""Symbolic dimensions: tokens of this run, tokens in a growing cache, and both together."""


class Decoder(Net):
    """A net with a decoder's inputs.

    Args:
        fixed: whether the KV cache has a fixed capacity; otherwise it grows.
        embeds: whether the graph takes embeddings of tokens in place of ids. What they look like, and the axes of
            positions, which the hyper-parameter `position_axes` lists for each rotated pair, is up to the whole model.
    """

    def __init__(
        self,
        graph: Graph,
        config: Config,
        weights: Mapping[str, StoredTensor],
        *,
        task: str = TEXT_GENERATION,
        fixed: bool = False,
        embeds: bool = False,
    ) -> None:
        super().__init__(graph, config, weights)
        self.task = task
        self.fixed = fixed
        self.embeds = embeds
        self.axes = tuple(config.values.get("position_axes") or ()) if embeds else ()
        self.groups = embeds and bool(config.values.get("token_groups"))
        self.prefix = self.groups and not fixed and bool(config.values.get("token_prefix"))
        self.both_ways = bool(config.values.get("both_ways"))
        self.causal = config.values.get("causal") is not False and not self.both_ways
        self._states: list[tuple[str, Value]] = []
        self._rings: dict[int, Value] = {}

    def begin(self, embed: str = "embed", scale: float | None = None) -> Value:
        """Declare the inputs and return the token embeddings [batch, length, hidden]: those that the graph takes, or
        rows of the weight `embed` times `scale`."""
        self.declare(("batch_size", LENGTH))
        if self.embeds:
            return self.tokens
        x = embedding(self, self.ids, embed)
        return x if scale is None else self.Mul(x, scale)

    def declare(self, shape: tuple[Dim, ...]) -> None:
        """Declare the inputs; `shape`: of ``input_ids``, of which the first dimensions are batch and length."""
        if self.embeds:
            self._embeds = self.input(EMBEDS, "f32", (*shape[:2], self.config.hidden))
        else:
            self.ids = self.input("input_ids", "i64", shape)
        self.mask = self.input("attention_mask", "i64", ("batch_size", TOTAL))
        axes = (max(self.axes) + 1,) if self.axes else ()
        self.positions = self.input("position_ids", "i64", (*axes, "batch_size", LENGTH))
        if self.fixed:
            self.cache_position = self.input(CACHE_POSITION, "i64", ("batch_size",))

    @property
    def tokens(self) -> Value:
        """The ids or embeddings of this run's tokens: the first dimensions are batch and length."""
        return self._embeds if self.embeds else self.ids

    def token_ids(self) -> Value:
        """The ids of this run's tokens; of a graph that takes embeddings a further input."""
        if not self.embeds:
            return self.ids
        return self.once("token_ids", lambda: self.input("input_ids", "i64", ("batch_size", LENGTH)))

    def with_features(self, x: Value, i: int) -> Value:
        """Hidden states after layer `i`; after the first layers, of which the hyper-parameter `deepstack` says how
        many, plus the input ``deepstack_features.I`` [batch, length, hidden] (DeepStack; Meng et al. 2024,
        arXiv:2406.04334)."""
        if not self.embeds or i >= (self.config.values.get("deepstack") or 0):
            return x
        shape = ("batch_size", LENGTH, self.config.hidden)
        value: Value = self.Add(x, self.input(f"{DEEPSTACK}.{i}", "f32", shape))
        return value

    def past(self, name: str, shape: tuple[Dim, ...]) -> Value:
        """Declare the input ``past_NAME``, a state before this run. It starts as zeros; a dimension `PAST` starts at
        0."""
        return self.input(f"past_{name}", "f32", ("batch_size", *shape))

    def cached(self, name: str, new: Value, heads: int, size: int, window: int | None = None) -> Value:
        """Keys or values [batch, heads, total, size] of past and current tokens; `new` is [batch, length, heads x
        size].

        In a fixed cache, those of a sliding-window layer are a ring buffer if the model is causal.
        """
        new = self.Transpose(self.split_heads(new, heads, size), perm=[0, 2, 1, 3])
        window = window if self.causal else None
        if self.fixed:
            past = self.past(name, (heads, TOTAL if window is None else ring_dim(window), size))
            mode = "linear" if window is None else "circular"
            whole = self.TensorScatter(past, new, self.cache_position, axis=2, mode=mode)
            if window is not None:
                self._rings.setdefault(window, whole)
        else:
            whole = self.Concat(self.past(name, (heads, PAST, size)), new, axis=2)
        self.present(name, whole)
        return whole

    def present(self, name: str, value: Value) -> None:
        """Declare the output ``present_NAME``, the state after this run."""
        self._states.append(
            (f"present{name.removeprefix('key_values')}" if name.startswith("key_values") else f"present_{name}", value)
        )

    def end(
        self, x: Value, norm: Norm | None, *, tied: str = "embed", change: Callable[[Value], Value] | None = None
    ) -> None:
        """Apply the last norm and declare the output by the model's task: logits [batch, length, vocabulary], classes
        [batch, labels] or hidden states."""
        x = norm(self, x, "norm") if norm else x
        if self.task == FEATURE_EXTRACTION:
            self.output("last_hidden_state", x)
        elif self.task in (TEXT_CLASSIFICATION, TEXT_RANKING):
            classes = linear(self, x, "classifier")
            self.output("logits", self._last(change(classes) if change and self.task == TEXT_RANKING else classes))
        else:
            for name, rows in (("logits", x), *([(LAST, self.Slice(x, [-1], [2**62], [1]))] if self.fixed else [])):
                logits = head(self, rows, tied=tied)
                self.output(name, change(logits) if change else logits)
        self._end_states()

    def close(self, name: str, x: Value) -> None:
        """Declare an output that is not a token's logits, and the states."""
        self.output(name, x)
        self._end_states()

    def _end_states(self) -> None:
        for name, value in self._states:
            self.output(name, value)

    def current_mask(self) -> Value:
        """Attention mask of this run's tokens, i64 [batch, length]."""
        return self.once("current_mask", self._current_mask)

    def _current_mask(self) -> Value:
        length = self.Shape(self.tokens, start=1, end=2)
        if self.fixed:
            # a Slice from a computed start has no inferable length
            numbers = self.Add(self._arange(length), self.Unsqueeze(self.cache_position, [1]))
            mask: Value = self.GatherElements(self.mask, numbers, axis=1)
        else:
            mask = self.Slice(self.mask, self.Neg(length), [2**62], [1])
        return mask

    def _last(self, classes: Value) -> Value:
        """The row of each sequence's last token that is neither masked padding nor the padding token."""
        length = self.Shape(self.tokens, start=1, end=2)
        one = self.Constant(value_int=1)
        numbers = self.Range(one, self.Add(self.Squeeze(length), one), one)
        seen, pad = self.current_mask(), self.config.values.get("pad")
        if pad is not None and not self.embeds:
            seen = self.Mul(seen, self.Cast(self.Not(self.Equal(self.ids, self.Constant(value_int=pad))), to=7))
        last = self.ArgMax(self.Mul(seen, numbers), axis=1, keepdims=1)
        rows: Value = self.GatherND(classes, last, batch_dims=1)
        return rows

    def visible(self, window: int | None = None, *, chunked: bool = False) -> Value:
        """Attention mask, bool [batch, 1, length, total]: which keys each query attends to, at most `window` back,
        itself included; all of them where the configuration says that the model is not causal. Where the
        hyper-parameter `both_ways` is true, a window reaches half as far to each side (EmbeddingGemma).

        Keys in a ring buffer must be `cached` before this is called. FormatError for windows of other models that are
        not causal.

        Args:
            chunked: whether a query sees keys of its own chunk only; chunks of `window` tokens begin at the first token
                that is not padding.
        """
        if window is not None and not self.causal and not self.both_ways:
            why = "a model that is not causal has sliding windows"
            raise FormatError("E-ARCH-CAUSAL", self.config.values.get("path"), why, expected="full attention")
        limit = window if window is None else self._in_chunk(window) if chunked else self._in_window(window)
        return self.once(
            ("visible", window, chunked),
            lambda: self._in_ring(window, limit) if window in self._rings else self._visible(limit),
        )

    def _visible(self, limit: Limit | None) -> Value:
        query, key = self._queries(), self.once("keys", lambda: self._arange(self.Shape(self.mask, start=1, end=2)))
        before = self.GreaterOrEqual(query if self.causal else self.Constant(value_int=2**31), key)
        return self._masked(query, key, limit, before, self.mask)

    def _in_ring(self, window: int, limit: Limit | None) -> Value:
        """Mask of a ring buffer: a slot holds the last token whose index has that remainder; negative if not written
        yet."""
        query, length = self._queries(), self.Shape(self._rings[window], start=2, end=3)
        last = self.Sub(self.Add(self.cache_position, self.Shape(self.tokens, start=1, end=2)), 1)
        last = self.Unsqueeze(last, [1])
        index = self.Sub(last, self.Mod(self.Sub(last, self._arange(length)), length))
        mask = self.GatherElements(self.mask, self.Max(index, self.Constant(value_int=0)), axis=1)
        key = self.Unsqueeze(index, [1, 2])
        written = self.GreaterOrEqual(key, self.Constant(value_int=0))
        return self._masked(query, key, limit, self.And(self.GreaterOrEqual(query, key), written), mask)

    def _in_window(self, window: int) -> Limit:
        if self.both_ways:
            return lambda query, key: self.LessOrEqual(self.Abs(self.Sub(query, key)), [window // 2])
        return lambda query, key: self.Less(self.Sub(query, key), [window])

    def _in_chunk(self, size: int) -> Limit:
        def chunk(index: Value) -> Value:
            first = self.once("first_token", lambda: self.Unsqueeze(self.ArgMax(self.mask, axis=1), [1, 2]))
            number: Value = self.Div(self.Sub(index, first), [size])
            return number

        return lambda query, key: self.Equal(chunk(query), chunk(key))

    def _queries(self) -> Value:
        """Indices of this run's tokens, padding included, [length, 1]; in a fixed cache [batch, 1, length, 1]."""
        return self.once("queries", self._query_positions)

    def _query_positions(self) -> Value:
        length = self.Shape(self.tokens, start=1, end=2)
        numbers = self.Transpose(self._arange(length))
        if self.fixed:
            return self.Add(numbers, self.Unsqueeze(self.cache_position, [1, 2, 3]))
        return self.Add(numbers, self.Sub(self.Shape(self.mask, start=1, end=2), length))

    def _arange(self, count: Value) -> Value:
        """0, 1, 2 ... below `count` [1], as [1, count]."""
        return self.Unsqueeze(
            self.Range(self.Constant(value_int=0), self.Squeeze(count), self.Constant(value_int=1)), [0]
        )

    def _masked(self, query: Value, key: Value, limit: Limit | None, before: Value, mask: Value) -> Value:
        """Combines `before`, the window or chunk and the padding mask; padding attends to itself, so that its rows stay
        finite."""
        if limit is not None:
            before = self.And(before, limit(query, key))
        if self.groups:
            before = self.Or(before, self._in_group(mask))
        tokens = self.Unsqueeze(self.Cast(mask, to=9), [1, 2])
        visible: Value = self.Or(self.And(before, tokens), self.Equal(query, key))
        return visible

    def _in_group(self, mask: Value) -> Value:
        """Whether a key is of the group of the query, [batch, 1, length, keys]."""
        own = self.Unsqueeze(self.current_mask(), [1, 3])
        alone: Value | list[int] = [1]
        if self.prefix:
            past = self.Sub(self.Shape(self.mask, start=1, end=2), self.Shape(self.tokens, start=1, end=2))
            alone = self.Min(past, [1])
        grouped: Value = self.And(self.Equal(own, self.Unsqueeze(mask, [1, 2])), self.Greater(own, alone))
        return grouped
