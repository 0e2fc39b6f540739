"""Arena layout: byte offsets of allocations; those whose lifetimes do not overlap share bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .kernel_api import ALIGNMENT, Allocation

ORDERS: tuple[Callable[[Allocation], tuple[int, ...]], ...] = (
    lambda allocation: (-allocation.nbytes, allocation.first),
    lambda allocation: (-allocation.nbytes * (allocation.last - allocation.first + 1), allocation.first),
    lambda allocation: (allocation.first - allocation.last, -allocation.nbytes),
)
"""Orders in which allocations are placed: by bytes, by bytes times lifetime, by lifetime; descending."""
MAX_ALLOCATIONS_FOR_ALL_ORDERS = 2000
"""Above this number of allocations only the first order is tried."""


def place(allocations: Sequence[Allocation]) -> int:
    """Set `at` of every allocation; the bytes that the arena needs.

    Best fit: each goes into the smallest gap between allocations that live at the same time, larger ones first
    (Pisarchyk and Lee, 2020). If that leaves holes, other orders are tried too and the smallest arena is used.
    """
    least = live_bytes(allocations, max((allocation.last for allocation in allocations), default=0))
    best, places = -1, []
    for order in ORDERS[: 1 if len(allocations) > MAX_ALLOCATIONS_FOR_ALL_ORDERS else None]:
        total = _placed(sorted(allocations, key=order))
        if best < 0 or total < best:
            best, places = total, [allocation.at for allocation in allocations]
        if best == least:
            break
    for allocation, at in zip(allocations, places, strict=True):
        allocation.at = at
    return best


def _placed(order: Sequence[Allocation]) -> int:
    """Set `at` of allocations one after another; the bytes that they need."""
    placed = np.zeros((4, len(order)), np.int64)
    total = 0
    for count, allocation in enumerate(order):
        need = aligned(allocation.nbytes)
        starts, stops, firsts, lasts = placed[:, :count]
        together = (firsts <= allocation.last) & (lasts >= allocation.first)
        allocation.at = _smallest_gap(starts[together], stops[together], need)
        total = max(total, allocation.at + need)
        behind = int(starts.searchsorted(allocation.at))
        placed[:, behind + 1 : count + 1] = placed[:, behind:count]
        placed[:, behind] = allocation.at, allocation.at + need, allocation.first, allocation.last
    return total


def _smallest_gap(starts: np.ndarray, stops: np.ndarray, need: int) -> int:
    """Start of the smallest gap of at least `need` bytes between ranges sorted by start; after the last range if no gap
    fits."""
    if not starts.size:
        return 0
    ends = np.maximum.accumulate(stops)
    gaps = starts.copy()
    gaps[1:] -= ends[:-1]
    fitting = np.flatnonzero(gaps >= need)
    if not fitting.size:
        return int(ends[-1])
    best = int(fitting[gaps[fitting].argmin()])
    return int(ends[best - 1]) if best else 0


def live_bytes(allocations: Sequence[Allocation], steps: int) -> int:
    """Bytes of the allocations that live at once, at the step where these are most: no arena can be smaller."""
    change = [0] * (steps + 2)
    for allocation in allocations:
        change[allocation.first] += aligned(allocation.nbytes)
        change[allocation.last + 1] -= aligned(allocation.nbytes)
    most = now = 0
    for step in change:
        now += step
        most = max(most, now)
    return most


def aligned(nbytes: int) -> int:
    """Bytes rounded up, so that allocations start in cache lines of their own."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
