"""Tensors split by rows or columns over several storages, concatenated lazily."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ...runtime.tensor.storage import Derived, Storage


def concat_rows(parts: Sequence[Storage]) -> Storage:
    """Row-wise concatenation of storages."""
    bounds = list(itertools.accumulate((part.nbytes for part in parts), initial=0))

    def read(start: int, stop: int) -> bytes | memoryview:
        pieces = [
            part.read(max(start, first) - first, min(stop, last) - first)
            for part, (first, last) in zip(parts, itertools.pairwise(bounds), strict=True)
            if first < stop and start < last
        ]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    return Derived(bounds[-1], 1, read)


def concat_columns(parts: Sequence[Storage], rows: int) -> Storage:
    """Column-wise concatenation of storages with `rows` rows each; read in full rows."""
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
