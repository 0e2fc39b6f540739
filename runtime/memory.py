"""Memory of a plan: where in one arena each room lies, so that rooms whose lifetimes do not overlap share bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .launch import ALIGNMENT, Room

ORDERS: tuple[Callable[[Room], tuple[int, ...]], ...] = (
    lambda room: (-room.nbytes, room.first),
    lambda room: (-room.nbytes * (room.last - room.first + 1), room.first),
    lambda room: (room.first - room.last, -room.nbytes),
)
"""In which order rooms are placed: large ones first, those that are large for long, those that live long."""
MANY = 2000
"""Rooms from which one order has to do."""


def place(rooms: Sequence[Room]) -> int:
    """Set `at` of every room; the bytes that the arena needs.

    Each room is placed into the smallest gap between rooms that live at the same time, larger ones first (Pisarchyk and Lee, 2020); where that
    leaves holes, in other orders too, and the best one counts.
    """
    least = live_bytes(rooms, max((room.last for room in rooms), default=0))
    best, places = -1, []
    for order in ORDERS[: 1 if len(rooms) > MANY else None]:
        total = _placed(sorted(rooms, key=order))
        if best < 0 or total < best:
            best, places = total, [room.at for room in rooms]
        if best == least:
            break
    for room, at in zip(rooms, places, strict=True):
        room.at = at
    return best


def _placed(order: Sequence[Room]) -> int:
    """Set `at` of rooms one after another; the bytes that they need."""
    placed = np.zeros((4, len(order)), np.int64)
    total = 0
    for count, room in enumerate(order):
        need = aligned(room.nbytes)
        starts, stops, firsts, lasts = placed[:, :count]
        together = (firsts <= room.last) & (lasts >= room.first)
        room.at = _smallest_gap(starts[together], stops[together], need)
        total = max(total, room.at + need)
        behind = int(starts.searchsorted(room.at))
        placed[:, behind + 1 : count + 1] = placed[:, behind:count]
        placed[:, behind] = room.at, room.at + need, room.first, room.last
    return total


def _smallest_gap(starts: np.ndarray, stops: np.ndarray, need: int) -> int:
    """Where the smallest gap of at least `need` bytes begins, between ranges in the order of their starts; behind them where there is none."""
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


def live_bytes(rooms: Sequence[Room], steps: int) -> int:
    """Bytes of the rooms that live at once, at the step where these are most: no arena can be smaller."""
    change = [0] * (steps + 2)
    for room in rooms:
        change[room.first] += aligned(room.nbytes)
        change[room.last + 1] -= aligned(room.nbytes)
    most = now = 0
    for step in change:
        now += step
        most = max(most, now)
    return most


def aligned(nbytes: int) -> int:
    """Bytes rounded up, so that rooms start in cache lines of their own."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
