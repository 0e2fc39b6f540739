"""Scaled dot-product attention (Vaswani et al. 2017, arXiv:1706.03762) with grouped key heads, computed in blocks of
scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ..rules.output_limit import allowed
from ..rules.sliding_window import Part, blocks

SCORE_BYTES = 8 << 20
"""Scores are held a block at a time, none larger than this (but at least one row of every query head of a group)."""

RAW, CAPPED, BIASED, PROBABILITIES = range(4)
"""Stages at which scores may be asked for."""


@dataclass(frozen=True)
class KeyVisibility:
    """Visibility of keys by position.

    Attributes:
        offset: position of the first query among the keys, [batch] or [1].
        causal: no key after the query's own position.
        left, right: at most so many keys before and after it; -1 for all.
        length: how many keys count at all, [batch] or None.
    """

    offset: np.ndarray
    causal: bool = False
    left: int = -1
    right: int = -1
    length: np.ndarray | None = None

    def part(self, batch: slice, rows: slice, keys: int) -> np.ndarray | None:
        """[batch or 1, 1, 1, rows, keys], True where a key may be seen; None where all may be."""
        if not (self.causal or self.left >= 0 or self.right >= 0 or self.length is not None):
            return None
        offset = (self.offset[batch] if len(self.offset) > 1 else self.offset).reshape(-1, 1, 1)
        query, key = offset + np.arange(rows.start, rows.stop)[:, None], np.arange(keys)
        seen = np.ones((len(offset), rows.stop - rows.start, keys), bool)
        if self.causal:
            seen &= key <= query
        if self.left >= 0:
            seen &= key >= query - self.left
        if self.right >= 0:
            seen &= key <= query + self.right
        if self.length is not None:
            seen = seen & (key < self.length[batch].reshape(-1, 1, 1))
        return seen[:, None, None]


@dataclass(frozen=True)
class Scoring:
    """Scale, softcap, sink and precision of attention scores.

    Attributes:
        scale: factor of the products.
        softcap: scores are bounded by it smoothly where it is above zero.
        precision: dtype that scores are rounded to before the softmax and after it, None to leave them.
        score_mod, prob_mod: take scores [batch, heads, queries, keys] to others of that shape, before and after the
            softmax.
        sink: for each query head, the score of a key without a value that every query sees; None for none.
    """

    scale: float
    softcap: float = 0.0
    precision: np.dtype[Any] | None = None
    score_mod: Callable[[np.ndarray], np.ndarray] | None = None
    prob_mod: Callable[[np.ndarray], np.ndarray] | None = None
    sink: np.ndarray | None = None


def attend(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    scoring: Scoring,
    visibility: KeyVisibility,
    mask: np.ndarray | None = None,
    capture: int | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Queries [batch, heads, queries, size] over keys and values [batch, key heads, keys, size], all of them f32 or
    f64.

    Args:
        mask: broadcasts to [batch, heads, queries, keys]; False or ``-inf`` hides a key, other numbers are added to the
            scores.
        capture: a stage whose scores are given too.

    Returns:
        Outputs [batch, heads, queries, value size], zero where a query sees no key, and the captured scores.
    """
    batch, heads, queries, _ = q.shape
    groups, keys = k.shape[1], k.shape[2]
    each = heads // groups if groups else 0
    y = np.empty(allowed((batch, heads, queries, v.shape[3]), q.itemsize, "attention"), q.dtype)
    scores = (
        None
        if capture is None
        else np.empty(allowed((batch, heads, queries, keys), q.itemsize, "attention scores"), q.dtype)
    )
    whole = scoring.score_mod is not None or scoring.prob_mod is not None
    if whole:
        allowed((batch, heads, queries, keys), q.itemsize, "attention scores")
    row = max(1, each * keys * q.itemsize)
    five = _grouped(mask, groups, each, keys) if mask is not None else None
    q5, y5 = q.reshape(batch, groups, each, queries, q.shape[3]), y.reshape(batch, groups, each, queries, v.shape[3])
    s5 = None if scores is None else scores.reshape(batch, groups, each, queries, keys)
    full: tuple[Part, ...] = (tuple(slice(0, length) for length in (batch, groups, queries)),)
    for images, kin, rows in full if whole else blocks((batch, groups, queries), SCORE_BYTES // row):
        part = q5[images, kin, :, rows] * q.dtype.type(scoring.scale)
        shape = part.shape
        made = part.reshape(*shape[:2], shape[2] * shape[3], shape[4]) @ np.swapaxes(k[images, kin], 2, 3)
        block = made.reshape(*shape[:4], keys)
        target = None if s5 is None else s5[images, kin, :, rows]
        seen = visibility.part(images, rows, keys)
        sink = None if scoring.sink is None else scoring.sink.astype(q.dtype).reshape(1, groups, each, 1, 1)[:, kin]
        block = probabilities(
            block, scoring, seen, None if five is None else _cut(five, images, kin, rows), target, capture, sink
        )
        y5[images, kin, :, rows] = (block.reshape(*made.shape) @ v[images, kin]).reshape(*shape[:4], v.shape[3])
    return y, scores


def probabilities(
    scores: np.ndarray,
    scoring: Scoring,
    seen: np.ndarray | None,
    mask: np.ndarray | None,
    target: np.ndarray | None,
    capture: int | None,
    sink: np.ndarray | None = None,
) -> np.ndarray:
    """Products [batch, key heads, heads of a group, queries, keys] to what values are weighted with; `target` gets the
    captured stage."""

    def captured(stage: int) -> None:
        if target is not None and capture == stage:
            target[...] = scores

    def modified(mod: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        return mod(scores.reshape(scores.shape[0], -1, *scores.shape[3:])).reshape(scores.shape)

    captured(RAW)
    if scoring.softcap > 0:
        cap = scores.dtype.type(scoring.softcap)
        np.divide(scores, cap, out=scores)
        np.tanh(scores, out=scores)
        np.multiply(scores, cap, out=scores)
    captured(CAPPED)
    if mask is not None and mask.dtype != bool:
        hidden = np.isneginf(mask)
        scores += mask
        mask = ~hidden if hidden.any() else None
    for visible in (mask, seen):
        if visible is not None:
            np.copyto(scores, -np.inf, where=~visible)
    captured(BIASED)
    wide = scores.dtype
    if scoring.precision is not None:
        scores = scores.astype(scoring.precision)
    if scoring.score_mod is not None:
        scores = modified(scoring.score_mod)
    scores = softmax_of_seen(
        scores.astype(np.promote_types(wide, np.float32) if scores.dtype.itemsize < 4 else scores.dtype, copy=False),
        sink,
    )
    if scoring.precision is not None:
        scores = scores.astype(scoring.precision, copy=False)
    if scoring.prob_mod is not None:
        scores = modified(scoring.prob_mod)
    scores = scores.astype(wide, copy=False)
    captured(PROBABILITIES)
    return scores


def softmax_of_seen(scores: np.ndarray, sink: np.ndarray | None = None) -> np.ndarray:
    """Softmax over the last axis in place; zero where every score is ``-inf``. `sink` is one more score, which takes
    its share."""
    top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    if sink is not None:
        top = np.maximum(top, sink)
    np.subtract(scores, np.where(np.isneginf(top), 0, top).astype(scores.dtype), out=scores)
    np.exp(scores, out=scores)
    total = np.sum(scores, axis=-1, keepdims=True)
    if sink is not None:
        total += np.exp(sink - top)
    np.divide(scores, np.where(total == 0, 1, total).astype(scores.dtype), out=scores)
    return scores


def _grouped(mask: np.ndarray, groups: int, each: int, keys: int) -> np.ndarray:
    """A mask as [batch or 1, key heads or 1, heads of a group or 1, queries or 1, keys]; keys beyond its end are
    hidden."""
    mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    missing = keys - mask.shape[3]
    if missing > 0:
        mask = np.pad(mask, [(0, 0)] * 3 + [(0, missing)], constant_values=False if mask.dtype == bool else -np.inf)
    split = (1, 1) if mask.shape[1] == 1 else (groups, each)
    return mask.reshape(mask.shape[0], *split, *mask.shape[2:])


def _cut(mask: np.ndarray, *parts: slice) -> np.ndarray:
    """The part of a grouped mask that a block sees."""
    lengths = mask.shape[0], mask.shape[1], mask.shape[3]
    images, kin, rows = (part if length > 1 else slice(None) for part, length in zip(parts, lengths, strict=True))
    return mask[images, kin, :, rows]
