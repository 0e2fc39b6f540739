"""Signed bytes in panels of 16 columns, their quads sorted by how many products of u8 x s8 a 16-bit lane can hold.

A quad is four elements of the common dimension. Two lanes of 16 bits add its products in pairs, whatever the unsigned
bytes are, as long as positive weights of a lane add up to at most 128, and so do negative ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

WIDTH = 16
"""Columns of a panel."""
LANE_LIMIT = 128
"""Largest sum of the weights of one sign: 255 times as much fits 16 bits."""
FIELDS = 3
"""Numbers of quads of a panel: couples whose lanes may be added, others that do not saturate, and the rest."""


class QuadOrder(NamedTuple):
    """The order of the quads of panels.

    Attributes:
        order: int32 [panels, quads], the quads in the order of the panels.
        counts: int32 [panels, FIELDS]: couples of quads at the beginning whose products are added in 16 bits, quads
            after them whose pairs of products are, and quads whose bytes are widened.
    """

    order: np.ndarray
    counts: np.ndarray


def quad_panels(columns: np.ndarray) -> np.ndarray:
    """int8 [columns, depth] as [panels, quads, WIDTH, 4], zero-padded."""
    count, depth = columns.shape
    whole = np.pad(columns, [(0, -count % WIDTH), (0, -depth % 4)])
    return np.ascontiguousarray(whole.reshape(-1, WIDTH, whole.shape[1] // 4, 4).transpose(0, 2, 1, 3))


def order_quads(panels: np.ndarray) -> QuadOrder:
    """The order of the quads of panels [panels, quads, WIDTH, 4].

    Quads are sorted by the largest sum of weights of one sign in any lane. The longest beginning is taken of which the
    first fits together with the last, the second with the last but one and so on.
    """
    pairs = panels.reshape(*panels.shape[:2], -1, 2)
    first, second = pairs[..., 0].astype(np.int16), pairs[..., 1].astype(np.int16)
    positive = (np.maximum(first, 0) + np.maximum(second, 0)).max(-1)
    largest = np.maximum(positive, -(np.minimum(first, 0) + np.minimum(second, 0)).min(-1))
    ranks = np.argsort(largest, 1, kind="stable")
    sums = np.take_along_axis(largest, ranks, 1)
    order, counts = np.empty(ranks.shape, np.int32), np.empty((len(panels), FIELDS), np.int32)
    for index, (own, at) in enumerate(zip(sums, ranks, strict=True)):
        low, high = 0, len(own) // 2
        while low < high:
            couples = (low + high + 1) // 2
            fits = (own[:couples] + own[couples : 2 * couples][::-1] <= LANE_LIMIT).all()
            low, high = (couples, high) if fits else (low, couples - 1)
        order[index] = at
        order[index, 0 : 2 * low : 2], order[index, 1 : 2 * low : 2] = at[:low], at[low : 2 * low][::-1]
        apart = int(np.searchsorted(own, LANE_LIMIT, "right"))
        counts[index] = low, max(apart, 2 * low) - 2 * low, len(own) - max(apart, 2 * low)
    return QuadOrder(order, counts)


def sort_quads(panels: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Panels [panels, quads, WIDTH, 4] with their quads in another order [panels, quads]."""
    return np.take_along_axis(panels, order[:, :, None, None], 1)
