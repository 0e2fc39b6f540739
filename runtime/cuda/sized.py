"""Sized results: arrays whose lengths kernels find; they lie at the start of memory for the most that there may be."""

from __future__ import annotations

from collections.abc import Callable

from ..launch import Buffer
from ..record import dataclass


@dataclass(frozen=True, eq=False)
class Sized:
    """An array whose shape follows from a number that the host reads when the launches before it are done.

    Attributes:
        buffer: memory for the most elements.
        count: i64, one number.
        shape: the shape for such a number.
    """

    buffer: Buffer
    count: Buffer
    shape: Callable[[int], tuple[int, ...]]


def parts(home: object) -> list[Buffer]:
    """Device memory of where a value is."""
    if isinstance(home, Sized):
        return [home.buffer, home.count]
    return [home] if isinstance(home, Buffer) else []
