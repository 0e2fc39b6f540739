"""KV caches: the states after the tokens a model has processed, and reusable arrays for single-token decoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass

CACHE_POSITION = "cache_position"


@dataclass(eq=False)
class DecodeStep:
    """A reusable decode step: states of fixed capacity stay in place, so each next token uses the same arrays.

    Attributes:
        output: name of the computed output.
        feeds: input arrays by name; tokens and positions are rewritten before each run.
        states: the cache's states; the step is invalid once the cache has other arrays.
        shape: that of the token ids.
        run: repeats the run on the arrays' contents (`Session.repeated`); None until first needed.
    """

    output: str
    feeds: dict[str, np.ndarray]
    states: dict[str, np.ndarray]
    shape: tuple[int, ...]
    run: Callable[[], Any] | None = None

    def fits(self, output: str, tokens: np.ndarray, cache: Cache) -> bool:
        """Whether this step computes the next run of `tokens`."""
        capacity = cache.mask_buffer.shape[1]
        same = self.output == output and self.states is cache.states and tokens.shape == self.shape
        return (
            same
            and cache.length < capacity
            and self.feeds.get("attention_mask", cache.mask_buffer) is cache.mask_buffer
        )

    def feed(self, tokens: Mapping[str, np.ndarray], cache: Cache) -> None:
        """Write the next tokens, by input name, and positions into the input arrays and append them to the cache."""
        before = cache.length
        written = {**tokens, "position_ids": cache.append_one(), CACHE_POSITION: np.array(before, np.int64)}
        for name, values in written.items():
            if name in self.feeds:
                self.feeds[name][...] = values


@dataclass(frozen=True, eq=False)
class EmbeddedPrompt:
    """Embeddings that replace the token ids of a batch of prompts, padded on the left.

    Attributes:
        inputs: f32 arrays [batch, length, hidden] by the decoder's names of inputs: ``inputs_embeds`` and others that
            an encoder fills where its placeholders are.
        mask: i64 [batch, length]: 0 for padding, 1 for tokens, larger for groups of them, as of `Decoder`.
        positions: i64 [axes, batch, length]; None to count along the mask.
        following: i64 [batch, 1], the position of the first token after the prompt, if `positions` are given.
    """

    inputs: Mapping[str, np.ndarray]
    mask: np.ndarray
    positions: np.ndarray | None = None
    following: np.ndarray | None = None

    @property
    def length(self) -> int:
        """Tokens of each row, padding included."""
        return int(self.mask.shape[1])

    @property
    def whole(self) -> bool:
        """Whether all of it has to be one run: tokens of a group attend to later ones."""
        return bool((self.mask > 1).any())


class Cache:
    """States of a model after the tokens it has processed.

    Attributes:
        states: arrays by input name.
        length: tokens and padding so far.
        mask_buffer: int64 [batch, capacity]: 0 for padding and unused slots, 1 for tokens; larger for those of a group
            that attend to each other (see `Decoder`).
        decode_step: the last run, if the next one may repeat it.
        expected_length: length that is about to be reached, to allocate for; 0 if unknown.
        source: inputs that every run has unchanged: what an encoder made of its text.
        prompt: the embeddings of the first tokens, for models that take pictures or sounds; None if ids say all.
        written_by: as `writers`, when rows were last reordered.
    """

    def __init__(
        self, states: dict[str, np.ndarray], batch: int, source: Mapping[str, np.ndarray] | None = None
    ) -> None:
        self.states = states
        self.source = dict(source or {})
        self.length = 0
        self.mask_buffer = np.zeros((batch, 0), np.int64)
        self.decode_step: DecodeStep | None = None
        self.expected_length = 0
        self.token_counts = np.zeros((batch, 1), np.int64)
        self.written_by = np.zeros((batch, 0), np.int64)
        self.prompt: EmbeddedPrompt | None = None

    @property
    def mask(self) -> np.ndarray:
        """Attention mask, int64 [batch, length]: 1 for tokens, 0 for padding."""
        return self.mask_buffer[:, : self.length]

    def writers(self) -> np.ndarray:
        """The row that each token was in when it was added, i64 [batch, length]: rows with the same writer of a token
        have the same states of it."""
        rows = np.arange(len(self.written_by))[:, None]
        return np.concatenate([self.written_by, np.repeat(rows, self.length - self.written_by.shape[1], 1)], 1)

    def copy(self) -> Cache:
        """A copy with its own arrays."""
        cache = Cache({name: array.copy() for name, array in self.states.items()}, len(self.mask_buffer), self.source)
        cache.length, cache.mask_buffer, cache.token_counts = self.length, self.mask_buffer.copy(), self.token_counts
        cache.written_by, cache.prompt = self.written_by, self.prompt
        return cache

    def truncate(self, length: int) -> None:
        """Drop all but the first `length` tokens and padding; states of fixed capacity keep the later entries,
        masked."""
        self.mask_buffer = self.mask_buffer[:, :length].copy()
        self.length, self.expected_length, self.decode_step = length, 0, None
        self.written_by = self.written_by[:, :length]
        self.token_counts = (self.mask_buffer != 0).sum(1, keepdims=True)

    def append(self, new: np.ndarray, capacity: int) -> np.ndarray:
        """Append tokens (1 or a group) and padding (0), int64 [batch, count], in an array for `capacity`; returns
        their positions."""
        self.mask_buffer = zero_padded(self.mask_buffer, (len(new), capacity))
        self.mask_buffer[:, self.length : self.length + new.shape[1]] = new
        self.length += new.shape[1]
        counted = self.token_counts + (new != 0).cumsum(1)
        self.token_counts = counted[:, -1:]
        positions: np.ndarray = np.maximum(counted - 1, 0)
        return positions

    def append_one(self) -> np.ndarray:
        """`append` for one token of each sequence within the capacity."""
        self.mask_buffer[:, self.length] = 1
        self.length += 1
        positions, self.token_counts = self.token_counts, self.token_counts + 1
        return positions


def resize_ring(array: np.ndarray, axis: int, length: int, count: int) -> np.ndarray:
    """A ring buffer (token n at n modulo its length) along an axis, copied into one of another length, after `count`
    tokens."""
    held = array.shape[axis]
    numbers = np.arange(max(0, count - min(held, length)), count)
    made = np.zeros((*array.shape[:axis], length, *array.shape[axis + 1 :]), array.dtype)
    if len(numbers):
        np.moveaxis(made, axis, 0)[numbers % length] = np.moveaxis(array, axis, 0)[numbers % held]
    return made


def zero_padded(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """`array` padded with zeros to a shape."""
    if array.shape == shape:
        return array
    whole = np.zeros(shape, array.dtype)
    whole[tuple(map(slice, array.shape))] = array
    return whole
