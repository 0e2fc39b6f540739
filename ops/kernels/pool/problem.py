"""Geometry of a 2-D pooling, as its kernels read it."""

from __future__ import annotations

from typing import NamedTuple

from ....runtime.jit.kernel_arguments import Address


class Pool(NamedTuple):
    """Windows of planes.

    Attributes:
        end_y, end_x: padding after; pad_y, pad_x: before.
        padded: whether padding counts.
        scratch: memory for every part.
        wide: elements of a row of it, or vectors; band: rows of the output that are computed together.
    """

    x: Address
    y: Address
    planes: int
    height: int
    width: int
    out_height: int
    out_width: int
    kernel_y: int
    kernel_x: int
    stride_y: int
    stride_x: int
    dilation_y: int
    dilation_x: int
    pad_y: int
    pad_x: int
    end_y: int
    end_x: int
    padded: int
    scratch: Address
    wide: int
    band: int
