"""Kernels of 16 bits for Winograd's squares, transformed as they are needed: that gives up to four times as many numbers, of 32 bits."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.kernel import inlined, inner
from ...runtime.simd import address_of, room
from ..math.lane_kernel import HALF, load_brain, load_half, load_single
from ..math.tile_kernel import PANEL
from .winograd_square_kernel import VECTOR, Square

TOGETHER = 8
"""Channels that are transformed together: what is between the two axes stays in the first cache, and results are written in long lines."""


@inlined
def _read(kind: Any, address: Any) -> Any:
    if kind == HALF:
        return load_half(address)
    return load_brain(address)


def panel_of_kernels(square: Square) -> Any:
    """What transforms a panel of kernels."""
    side, spread = square.side, square.spread
    vectors = 4 * PANEL // VECTOR
    line, spares = 3 * VECTOR * vectors * TOGETHER, 3 * side * vectors * TOGETHER

    @inner
    def transformed(kind: Any, source: Any, target: Any, channels: Any) -> None:
        """Kernels [channels, 9, PANEL] of a kind, as [places, channels, PANEL] of f32."""
        spare, apart = address_of(room(np.float32, spares)), 4 * PANEL * channels
        for channel in range(0, channels, TOGETHER):
            count = vectors * min(TOGETHER, channels - channel)
            for index in range(count):
                taps = source + 18 * PANEL * (channel + index // vectors) + VECTOR // 2 * (index % vectors)
                for column in range(3):
                    tap = taps + 2 * PANEL * column
                    above, middle, below = _read(kind, tap), _read(kind, tap + 6 * PANEL), _read(kind, tap + 12 * PANEL)
                    spread(above, middle, below, spare + VECTOR * (3 * index + column), line)
            for row in range(side):
                for index in range(count):
                    at = spare + line * row + 3 * VECTOR * index
                    place = target + apart * side * row + 4 * PANEL * channel + VECTOR * index
                    spread(load_single(at), load_single(at + VECTOR), load_single(at + 2 * VECTOR), place, apart)

    return transformed


def by_channel(w: np.ndarray) -> np.ndarray:
    """Kernels [outputs, channels, 3, 3] as panels [outputs / PANEL, channels, 9, PANEL]."""
    outputs, channels = w.shape[:2]
    panels = -(-outputs // PANEL)
    whole = np.zeros((panels * PANEL, channels, 9), w.dtype)
    whole[:outputs] = w.reshape(outputs, channels, 9)
    return whole.reshape(panels, PANEL, channels, 9).transpose(0, 2, 3, 1)
