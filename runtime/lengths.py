"""Lengths that inputs may have in later runs, so that kernels which only these need are compiled together with those of the first run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .dim import PLUS
from .graph import Value

LENGTHS = (1, 2, 3, 4, 5, 8, 9, 16, 32, 64, 300, 513)
"""Of texts, between which planners choose other kernels: one row, few, enough for a tile, enough elements for a loop of their own."""
FEW = (1, 2, 5, 20, 300)
"""Of these, where there are several sequences side by side."""
MOST_NODES = 6_000
"""Nodes that are planned for other lengths, all plans together: half a second. A graph of more is planned for what it is fed alone."""


def others(inputs: Sequence[Value], feeds: Sequence[Any], nodes: int) -> list[list[Any]]:
    """Feeds like some, whose symbolic lengths are others: zeros that take no memory. Values of one element are those of `feeds`."""
    fed: dict[str, int] = {}
    spatial: set[str] = set()
    for value, feed in zip(inputs, feeds, strict=True):
        if isinstance(feed, np.ndarray) and value.shape is not None and len(value.shape) == feed.ndim:
            named = {axis: dim for axis, dim in enumerate(value.shape) if isinstance(dim, str) and PLUS not in dim}
            fed |= {dim: feed.shape[axis] for axis, dim in named.items()}
            spatial |= {dim for axis, dim in named.items() if axis >= 2 and feed.ndim >= 4}
    choices = itertools.islice(_choices(fed, spatial), MOST_NODES // max(1, nodes))
    return [[_shaped(value, feed, lengths) for value, feed in zip(inputs, feeds, strict=True)] for lengths in choices]


def _choices(fed: dict[str, int], spatial: set[str]) -> Iterator[dict[str, int]]:
    """Lengths by name: one changes, the others are as they were fed, or two where they are not sides of a picture, which doubles and halves."""
    seen = [fed]
    several = {name: length if name in spatial else 2 for name, length in fed.items()}
    for name, length in fed.items():
        sizes = (2 * length, max(1, length // 2)) if name in spatial else LENGTHS
        for base, lengths in ((fed, sizes), (several, () if name in spatial else FEW)):
            for size in lengths:
                made = {**base, name: size}
                if made not in seen:
                    seen.append(made)
                    yield made


def _shaped(value: Value, feed: Any, lengths: dict[str, int]) -> Any:
    if not isinstance(feed, np.ndarray) or not feed.ndim or value.shape is None or len(value.shape) != feed.ndim:
        return feed
    shape = tuple(_length(dim, length, lengths) for dim, length in zip(value.shape, feed.shape, strict=True))
    return feed if shape == feed.shape else np.broadcast_to(np.zeros((), feed.dtype), shape)


def _length(dim: Any, fed: int, lengths: dict[str, int]) -> int:
    """A length by its name, which may be a sum."""
    if not isinstance(dim, str):
        return fed
    terms = [int(term) if term.isascii() and term.isdigit() else lengths.get(term) for term in dim.split(PLUS)]
    return fed if None in terms else sum(term for term in terms if term is not None)
