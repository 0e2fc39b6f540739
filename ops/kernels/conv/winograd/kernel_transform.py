"""Winograd transforms of kernels, computed when they are used to save memory: transformed ones are f32, and four times
as large as f32 for tiles of 4 x 4."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from .....runtime.jit.range_kernel import inlined, inner
from .....runtime.simd.memory import F16_CODE, F32_CODE, load_bf16, load_f16, load_f32
from .....runtime.simd.vector import LANES, address_of, stack_array
from ...gemm.register_tile import PANEL
from .transform import VECTOR, TileTransform

CHANNEL_BLOCK = 8
"""Channels that are transformed together, so that intermediates stay in L1 and writes are long."""


@inlined
def _read(kind: Any, address: Any) -> Any:
    if kind == F32_CODE:
        return load_f32(address)
    if kind == F16_CODE:
        return load_f16(address)
    return load_bf16(address)


@inlined
def panel_bytes(kind: Any, channels: Any) -> Any:
    """Bytes of a panel of `pack_kernels`."""
    return (36 if kind == F32_CODE else 18) * PANEL * channels


def panel_transform(transform: TileTransform) -> Any:
    """The kernel function that transforms a panel of weights."""
    input_edge, kernel_transform = transform.input_edge, transform.kernel_transform
    vectors = 4 * PANEL // VECTOR
    line, spares = 3 * VECTOR * vectors * CHANNEL_BLOCK, 3 * input_edge * vectors * CHANNEL_BLOCK

    @inner
    def pack_weights(kind: Any, source: Any, target: Any, channels: Any) -> None:
        """Kernels [channels, 9, PANEL] of a kind, as [positions, channels, PANEL] of f32."""
        spare, apart = address_of(stack_array(np.float32, spares)), 4 * PANEL * channels
        for channel in range(0, channels, CHANNEL_BLOCK):
            count = vectors * min(CHANNEL_BLOCK, channels - channel)
            size = panel_bytes(kind, 1) // (9 * PANEL)
            row = 3 * size * PANEL
            for index in range(count):
                taps = source + 3 * row * (channel + index // vectors) + size * LANES * (index % vectors)
                for column in range(3):
                    tap = taps + size * PANEL * column
                    above, middle, below = _read(kind, tap), _read(kind, tap + row), _read(kind, tap + 2 * row)
                    kernel_transform(above, middle, below, spare + VECTOR * (3 * index + column), line)
            for edge_row in range(input_edge):
                for index in range(count):
                    at = spare + line * edge_row + 3 * VECTOR * index
                    place = target + apart * input_edge * edge_row + 4 * PANEL * channel + VECTOR * index
                    kernel_transform(load_f32(at), load_f32(at + VECTOR), load_f32(at + 2 * VECTOR), place, apart)

    return pack_weights


def pack_kernels(w: np.ndarray) -> np.ndarray:
    """Kernels [outputs, channels, 3, 3] as panels [outputs / PANEL, channels, 9, PANEL]."""
    outputs, channels = w.shape[:2]
    panels = -(-outputs // PANEL)
    whole = np.zeros((panels * PANEL, channels, 9), w.dtype)
    whole[:outputs] = w.reshape(outputs, channels, 9)
    return np.ascontiguousarray(whole.reshape(panels, PANEL, channels, 9).transpose(0, 2, 3, 1))
