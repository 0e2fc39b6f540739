"""Memory of a plan: where in one arena each room lies, so that rooms whose lifetimes do not overlap share bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .launch import ALIGNMENT, Room


def place(rooms: Sequence[Room]) -> int:
    """Set `at` of every room; the bytes that the arena needs.

    Larger rooms are placed first, each into the smallest gap between rooms that live at the same time (Pisarchyk and Lee, 2020).
    """
    order = sorted(rooms, key=lambda room: (-room.nbytes, room.first))
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
