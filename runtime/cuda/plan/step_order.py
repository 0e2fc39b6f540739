"""Step order of a device plan: uploads of inputs first and all error flags in one array, so that launches are
consecutive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...plan.kernel_api import Allocation, Buffer


def inputs_first(
    steps: Sequence[Any], nodes: Sequence[Any], is_input: Callable[[Any], bool]
) -> tuple[list[Any], list[Any]]:
    """Steps and their nodes, with uploads of inputs first."""
    early = [is_input(step) for step in steps]
    order = [place for place, first in enumerate(early) if first] + [
        place for place, first in enumerate(early) if not first
    ]
    return [steps[place] for place in order], [nodes[place] for place in order]


def flags_together(flags: Sequence[Buffer], last: int) -> Buffer | None:
    """An array for all flags, live from the first to the last step; None without flags."""
    if not flags:
        return None
    return Buffer(np.dtype(np.uint8), (len(flags),), Allocation(len(flags), first=0, last=last))


def flags_placed(flags: Sequence[Buffer], together: Buffer | None) -> None:
    """Assign each flag its byte of the array."""
    for number, flag in enumerate(flags):
        assert together is not None
        flag.allocation.at = together.allocation.at + number
