"""Tensors whose rows or columns are spread over several storages, put together when they are read."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ...runtime.storage import Derived, Storage


def stacked(parts: Sequence[Storage]) -> Storage:
    """Storages of which each holds the rows after those of the one before."""
    bounds = list(itertools.accumulate((part.nbytes for part in parts), initial=0))

    def read(start: int, stop: int) -> bytes | memoryview:
        pieces = [
            part.read(max(start, first) - first, min(stop, last) - first)
            for part, (first, last) in zip(parts, itertools.pairwise(bounds), strict=True)
            if first < stop and start < last
        ]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    return Derived(bounds[-1], 1, read)


def side_by_side(parts: Sequence[Storage], rows: int) -> Storage:
    """Storages of which each holds the columns right of those of the one before, for all `rows` rows; read in whole rows."""
    widths = [part.nbytes // rows for part in parts]

    def read(start: int, stop: int) -> memoryview:
        import numpy

        first, last = start // sum(widths), stop // sum(widths)
        blocks = [
            numpy.frombuffer(part.read(first * width, last * width), numpy.uint8).reshape(last - first, width)
            for part, width in zip(parts, widths, strict=True)
        ]
        return numpy.concatenate(blocks, axis=1).reshape(-1).data

    return Derived(rows * sum(widths), sum(widths), read)
