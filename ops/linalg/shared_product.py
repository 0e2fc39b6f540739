"""Products of few rows with a matrix that many products of a run read: it is copied into panels once."""

from __future__ import annotations

from ...runtime.plan.kernel_api import Buffer, Launch, Step
from ..kernels.gemm.register_tile import PANEL
from .panel_product import copied_into_panels, packed_launch

FEWEST_READERS = 4
"""Nodes that read a matrix from which one copy of it pays."""


def shared_launch(
    step: Step,
    buffers: tuple[Buffer, Buffer, Buffer],
    lengths: tuple[int, int, int],
    strides: tuple[int, int, int, int],
) -> list[Launch] | None:
    """A product of `lengths` rows, columns and depth, None where few nodes read the right matrix.

    Args:
        buffers: both factors and the product.
        strides: elements from row to row and from column to column, of both factors.
    """
    a, b, y = buffers
    _, columns, depth = lengths
    if step.readers(b) < FEWEST_READERS or min(columns, depth) < PANEL:
        return None
    key = (shared_launch, id(b.allocation), b.offset, columns, depth, strides[2:])
    packed, packing = step.copies.get(key), list[Launch]()
    if packed is None:
        packed, packing = copied_into_panels(step, b, (depth, columns), strides[2:])
        step.copies[key] = packed
    return [*packing, packed_launch(step, a, packed, y, None, lengths, strides[:2])]
