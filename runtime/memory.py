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
    firsts, lasts, starts, stops = np.zeros((4, len(order)), np.int64)
    total = 0
    for count, room in enumerate(order):
        need = aligned(room.nbytes)
        together = np.flatnonzero((firsts[:count] <= room.last) & (lasts[:count] >= room.first))
        at, best, gap = 0, -1, -1
        for start, stop in sorted(zip(starts[together].tolist(), stops[together].tolist(), strict=True)):
            if start - at >= need and (best < 0 or start - at < gap):
                best, gap = at, start - at
            at = max(at, stop)
        room.at = best if best >= 0 else at
        firsts[count], lasts[count], starts[count], stops[count] = room.first, room.last, room.at, room.at + need
        total = max(total, room.at + need)
    return total


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
