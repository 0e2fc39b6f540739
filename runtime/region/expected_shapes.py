"""Input shapes expected in later runs, whose kernels are compiled together with those of the first run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..ir.graph import Value
from ..ir.symbolic_dim import PLUS

LENGTHS = (1, 2, 3, 4, 5, 8, 9, 16, 32, 96, 300, 513)
"""Sequence lengths at which planners choose different kernels: one row, a few, a full tile, enough for a loop."""
BATCHED_LENGTHS = (1, 2, 5, 20, 300)
"""The lengths tried with a batch of several sequences."""
MAX_PLANNED_NODES = 6_000
"""Nodes planned for expected shapes in total, about half a second; a larger graph is planned only for what is fed."""


def expected_feeds(inputs: Sequence[Value], feeds: Sequence[Any], nodes: int) -> list[list[Any]]:
    """Feeds with other symbolic lengths: zeros broadcast from one element. Arrays without symbolic dimensions are those
    of `feeds`."""
    fed: dict[str, int] = {}
    spatial: set[str] = set()
    for value, feed in zip(inputs, feeds, strict=True):
        if isinstance(feed, np.ndarray) and value.shape is not None and len(value.shape) == feed.ndim:
            named = {axis: dim for axis, dim in enumerate(value.shape) if isinstance(dim, str) and PLUS not in dim}
            fed |= {dim: feed.shape[axis] for axis, dim in named.items()}
            spatial |= {dim for axis, dim in named.items() if axis >= 2 and feed.ndim >= 4}
    choices = itertools.islice(_length_choices(fed, spatial), MAX_PLANNED_NODES // max(1, nodes))
    return [
        [_with_lengths(value, feed, lengths) for value, feed in zip(inputs, feeds, strict=True)] for lengths in choices
    ]


def _length_choices(fed: dict[str, int], spatial: set[str]) -> Iterator[dict[str, int]]:
    """Lengths by symbol. One changes; the others are as fed, or 2 (a batch). Image sides are doubled and halved."""
    seen = [fed]
    several = {name: length if name in spatial else 2 for name, length in fed.items()}
    for name, length in fed.items():
        sizes = (2 * length, max(1, length // 2)) if name in spatial else LENGTHS
        for base, lengths in ((fed, sizes), (several, () if name in spatial else BATCHED_LENGTHS)):
            for size in lengths:
                made = {**base, name: size}
                if made not in seen:
                    seen.append(made)
                    yield made


def _with_lengths(value: Value, feed: Any, lengths: dict[str, int]) -> Any:
    if not isinstance(feed, np.ndarray) or not feed.ndim or value.shape is None or len(value.shape) != feed.ndim:
        return feed
    shape = tuple(_length(dim, length, lengths) for dim, length in zip(value.shape, feed.shape, strict=True))
    return feed if shape == feed.shape else np.broadcast_to(np.zeros((), feed.dtype), shape)


def _length(dim: Any, fed: int, lengths: dict[str, int]) -> int:
    """The value of a dimension, which may be a sum of symbols."""
    if not isinstance(dim, str):
        return fed
    terms = [int(term) if term.isascii() and term.isdigit() else lengths.get(term) for term in dim.split(PLUS)]
    return fed if None in terms else sum(term for term in terms if term is not None)
