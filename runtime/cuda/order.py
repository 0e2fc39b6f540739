"""The order of a plan's steps, made so that launches follow each other: copies of inputs come first, and all flags are one array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..launch import Buffer, Room


def inputs_first(steps: Sequence[Any], nodes: Sequence[Any], is_input: Callable[[Any], bool]) -> tuple[list[Any], list[Any]]:
    """Steps and their nodes, copies of what is fed to the device before everything else."""
    early = [is_input(step) for step in steps]
    order = [place for place, first in enumerate(early) if first] + [place for place, first in enumerate(early) if not first]
    return [steps[place] for place in order], [nodes[place] for place in order]


def flags_together(flags: Sequence[Buffer], last: int) -> Buffer | None:
    """An array whose bytes the flags become by `flags_placed`, used from the first to the last step; None where there are none."""
    if not flags:
        return None
    return Buffer(np.dtype(np.uint8), (len(flags),), Room(len(flags), first=0, last=last))


def flags_placed(flags: Sequence[Buffer], together: Buffer | None) -> None:
    """Give each flag its byte of the array, which has its place."""
    for number, flag in enumerate(flags):
        assert together is not None
        flag.room.at = together.room.at + number
