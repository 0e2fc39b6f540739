"""The panels by which each instruction set multiplies u8 x s8: unsigned for dot4, signed for pairs of bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .....runtime.simd.dot4_u8s8 import PATH
from ..microkernel_u8s8 import BYTE_PAIRS, column_kernel, pack_panels_u8
from ..register_tile import PANEL
from .panels import column_of_pairs, pack_panels_s8, panel_of_pairs_bytes


class BytePanels(NamedTuple):
    """Product of rows with panels, for a row of `INTEGERS`.

    Attributes:
        column: sums [rows, PANEL] of rows of some words with one panel, as `column_kernel` makes it.
        pack: panels of a matrix of bytes [depth, columns], padded to a multiple of some words.
        panel_bytes: bytes of a panel of some words.
        unsigned_rows: whether rows are unsigned and panels signed.
    """

    column: Any
    pack: Callable[[np.ndarray, int], np.ndarray]
    panel_bytes: Callable[[int], int]
    unsigned_rows: bool


def byte_panels(path: str) -> BytePanels:
    """The panels of a row of `INTEGERS`."""
    if path == BYTE_PAIRS:
        return BytePanels(column_of_pairs, pack_panels_s8, panel_of_pairs_bytes, True)
    return BytePanels(column_kernel(path), pack_panels_u8, lambda quads: 4 * PANEL * quads, False)


BYTE_PANELS = byte_panels(PATH)
column_of_tiles_u8s8 = BYTE_PANELS.column
