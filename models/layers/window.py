"""Windows: layers that look back at most so many tokens keep their keys and values in a ring, where new ones replace those that nobody sees any more.

The ring's length is a symbolic one, named for the window: `ring` of 512 is ``window_512``. Token number n lies at n modulo that length.
"""

from __future__ import annotations

from ...runtime.graph import Dim

NAME = "window_"
STEP = 256
"""Rings are as long as a multiple of this, so that few lengths are planned for."""


def ring(window: int) -> str:
    """The name of the length of a ring."""
    return f"{NAME}{window}"


def window_of(dim: Dim) -> int | None:
    """The window that a length is a ring's of."""
    size = dim.removeprefix(NAME) if isinstance(dim, str) and dim.startswith(NAME) else ""
    return int(size) if size.isascii() and size.isdigit() else None


def needed(window: int, count: int) -> int:
    """Length of a ring for runs over `count` tokens: the first of them still sees its window when the last has been written."""
    return -(-(window + count) // STEP) * STEP
