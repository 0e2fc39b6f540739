"""Caches: what a model remembers of the tokens that it has seen, and the arrays of a run that is done again for one more token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.record import dataclass

PLACE = "cache_position"


@dataclass(eq=False)
class Decoding:
    """A run over one more token of each sequence that left a cache's states where they were, so that the next one is fed the same arrays.

    Attributes:
        output: what it computes.
        feeds: its arrays by the names of the inputs; tokens and places are changed from run to run.
        states: the cache's, which has others when these are no longer right.
        run: does it again for what the arrays hold, as `Session.repeated`; None where that was not asked for yet.
    """

    output: str
    feeds: dict[str, np.ndarray]
    states: dict[str, np.ndarray]
    run: Callable[[], Any] | None = None

    def fits(self, output: str, tokens: np.ndarray, cache: Cache) -> bool:
        """Whether some more tokens are the next run."""
        room = cache.marks.shape[1]
        same = self.output == output and self.states is cache.states and tokens.shape == self.feeds["input_ids"].shape
        return same and cache.length < room and self.feeds.get("attention_mask", cache.marks) is cache.marks

    def feed(self, tokens: np.ndarray, cache: Cache) -> None:
        """Set what changes; the cache marks the tokens."""
        before = cache.length
        for name, values in (("input_ids", tokens), ("position_ids", cache.mark_next()), (PLACE, before)):
            if name in self.feeds:
                self.feeds[name][...] = values


class Cache:
    """What a model remembers of the tokens that it has seen.

    Attributes:
        states: by the names of the model's inputs.
        length: tokens and padding so far.
        marks: int64 [batch, room]: 1 for tokens, 0 for padding and for what is not there yet.
        decoding: the last run, where the next one may be like it.
        awaited: length that it will have soon, 0 where that is not known; it gets room for so many.
    """

    def __init__(self, states: dict[str, np.ndarray], batch: int) -> None:
        self.states = states
        self.length = 0
        self.marks = np.zeros((batch, 0), np.int64)
        self.decoding: Decoding | None = None
        self.awaited = 0
        self._known = np.zeros((batch, 1), np.int64)

    @property
    def mask(self) -> np.ndarray:
        """int64 [batch, length]: 1 for tokens, 0 for padding."""
        return self.marks[:, : self.length]

    def copy(self) -> Cache:
        """Another one of the same tokens, with arrays of its own."""
        made = Cache({name: array.copy() for name, array in self.states.items()}, len(self.marks))
        made.length, made.marks, made._known = self.length, self.marks.copy(), self._known
        return made

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` tokens and padding; states of fixed capacity keep what lies behind them, which is masked."""
        self.marks = self.marks[:, :length].copy()
        self.length, self.awaited, self.decoding = length, 0, None
        self._known = self.marks.sum(1, keepdims=True)

    def mark(self, new: np.ndarray, room: int) -> np.ndarray:
        """Note some more tokens (1) and padding (0), int64 [batch, count], with room for so many; their positions among the tokens."""
        self.marks = grown(self.marks, (len(new), room))
        self.marks[:, self.length : self.length + new.shape[1]] = new
        self.length += new.shape[1]
        counted = self._known + new.cumsum(1)
        self._known = counted[:, -1:]
        places: np.ndarray = np.maximum(counted - 1, 0)
        return places

    def mark_next(self) -> np.ndarray:
        """As `mark` for one token of each sequence, where there is room for it."""
        self.marks[:, self.length] = 1
        self.length += 1
        places, self._known = self._known, self._known + 1
        return places


def turned(array: np.ndarray, axis: int, length: int, count: int) -> np.ndarray:
    """A ring along an axis, in which number n lies at n modulo its length, as one of another length, after `count` numbers."""
    held = array.shape[axis]
    numbers = np.arange(max(0, count - min(held, length)), count)
    made = np.zeros((*array.shape[:axis], length, *array.shape[axis + 1 :]), array.dtype)
    if len(numbers):
        np.moveaxis(made, axis, 0)[numbers % length] = np.moveaxis(array, axis, 0)[numbers % held]
    return made


def grown(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """`array`, followed by zeros up to a shape."""
    if array.shape == shape:
        return array
    whole = np.zeros(shape, array.dtype)
    whole[tuple(map(slice, array.shape))] = array
    return whole
