"""Values known at planning time: inferred shapes, plus constants small enough to fold."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..ir.graph import Value
from ..ir.shape_inference import MAX_DATA, Facts
from ..tensor.weight_array import Blocks, LazyWeight, Packed

MAX_FOLDED_ELEMENTS = 1 << 16
"""Elements of the largest result that is folded."""


class KnownValues(Facts):
    """Facts that know constants by value, whichever graph they belong to."""

    def __init__(
        self, constants: Mapping[Value, np.ndarray | Blocks | Packed] | Mapping[Value, np.ndarray | Blocks | LazyWeight]
    ) -> None:
        super().__init__()
        self.constants = constants

    def array(self, value: Value) -> np.ndarray | None:
        found = self.constants.get(value)
        if found is not None:
            return found if isinstance(found, np.ndarray) and found.size <= MAX_DATA else None
        return super().array(value)
