"""Limits of data-dependent output sizes, checked before memory is allocated."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...runtime.base.errors import LimitError
from ...runtime.base.limits import current
from ...runtime.base.memory_check import check_memory
from ...runtime.base.units import counted


def allowed(shape: Sequence[int], itemsize: int, what: str) -> tuple[int, ...]:
    """`shape` as a tuple of ints, when such an array stays within ``limits(memory=...)`` and fits into the machine;
    LimitError otherwise.

    An array without elements must not have a long axis either: operators list the positions along it.
    """
    lengths = tuple(int(length) for length in shape)
    nbytes = math.prod(lengths) * itemsize or max(lengths, default=0) * 8
    if nbytes > current().memory:
        why = (
            f"{what} asks for "
            f"{counted(nbytes, 'byte')} for an array of {list(lengths)}, {current().memory:,} are allowed"
        )
        raise LimitError("E-RUN-MEMORY", None, why, hint="Raise it with --limit memory=8GiB")
    check_memory(nbytes, 0, f"{what} with {list(lengths)}")
    return lengths
