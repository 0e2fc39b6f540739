"""What planners know of values: facts, and constants by value, small ones of which are computed while planning."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .blocks import Blocks, Packed, Unread
from .graph import Value
from .infer import MAX_DATA, Facts

FOLDED_ELEMENTS = 1 << 16
"""Elements of a result that is computed while planning."""


class Known(Facts):
    """Facts that know constants by value, whichever graph they come from."""

    def __init__(self, constants: Mapping[Value, np.ndarray | Blocks | Packed] | Mapping[Value, np.ndarray | Blocks | Unread]) -> None:
        super().__init__()
        self.constants = constants

    def array(self, value: Value) -> np.ndarray | None:
        found = self.constants.get(value)
        if found is not None:
            return found if isinstance(found, np.ndarray) and found.size <= MAX_DATA else None
        return super().array(value)
