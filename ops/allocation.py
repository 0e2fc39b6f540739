"""Allocation: results whose size a model's data decides are refused before memory is asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..runtime.errors import LimitError
from ..runtime.limits import current


def allowed(shape: Sequence[int], itemsize: int, what: str) -> tuple[int, ...]:
    """`shape` as a tuple of ints, when such an array stays within ``limits(memory=...)``; LimitError otherwise."""
    lengths = tuple(int(length) for length in shape)
    nbytes = math.prod(lengths) * itemsize
    if nbytes > current().memory:
        raise LimitError(
            "E-RUN-MEMORY", None, f"{what} asks for {nbytes:,} bytes, {current().memory:,} are allowed", hint="Raise it with --limit memory=8GiB"
        )
    return lengths
