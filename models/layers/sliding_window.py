"""Ring buffers: the KV cache of sliding-window layers, where new tokens overwrite those outside the window.

The length is a symbolic dimension named for the window: a window of 512 has ``window_512``. Token n is at n modulo the
length.
"""

from __future__ import annotations

from ...runtime.ir.graph import Dim

PREFIX = "window_"
STEP = 256
"""Ring lengths are multiples of this, so that few lengths are planned for."""


def ring_dim(window: int) -> str:
    """Name of the symbolic length of a window's ring buffer."""
    return f"{PREFIX}{window}"


def window_of(dim: Dim) -> int | None:
    """The window whose ring buffer has this length, or None."""
    size = dim.removeprefix(PREFIX) if isinstance(dim, str) and dim.startswith(PREFIX) else ""
    return int(size) if size.isascii() and size.isdigit() else None


def ring_length(window: int, count: int) -> int:
    """Length of a ring buffer for runs of `count` tokens: the first of them must still see its window after the last is
    written."""
    return -(-(window + count) // STEP) * STEP
