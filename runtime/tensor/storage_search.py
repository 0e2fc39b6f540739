"""Storage search: reads storage piece by piece, skips holes of sparse files, stays within a time limit."""

from __future__ import annotations

from collections.abc import Iterator

from ..base.limits import Budget
from .file import Source
from .storage import Region, Storage


def windows(storage: Storage | Source, budget: Budget, size: int, overlap: int) -> Iterator[tuple[int, bytes]]:
    """Offsets and bytes of pieces that cover all that was ever written, each with the first `overlap` bytes after it.

    Holes are zeros; pieces are left out that lie in one. LimitError when the time of the budget is up.
    """
    whole = Region(storage, 0, storage.size) if isinstance(storage, Source) else storage
    for first, last in _written(whole):
        for start in range(first, last, size):
            budget.entry(0)
            yield start, bytes(whole.read(start, min(whole.nbytes, min(start + size, last) + overlap)))


def _written(storage: Storage) -> Iterator[tuple[int, int]]:
    """Ranges of a storage that are not holes."""
    if not isinstance(storage, Region):
        yield 0, storage.nbytes
        return
    for first, last in storage.source.written(storage.offset, storage.offset + storage.nbytes):
        yield first - storage.offset, last - storage.offset
