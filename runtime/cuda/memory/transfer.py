"""Device bytes: flat views, addresses, and copies to and from the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...plan.kernel_api import Allocation, Buffer
from ..device.device import SIMULATED

WORKSPACE_ALIGNMENT = 256
"""Alignment of library workspaces; some of their kernels fail without it."""


def to_device(target: Any, source: np.ndarray) -> None:
    """Copy host bytes to device bytes."""
    if source.size:
        target.copy_to_device(source)


def address(data: Any) -> int:
    """Address of the first byte."""
    return int(data._ary.ctypes.data) if SIMULATED else int(data.__cuda_array_interface__["data"][0])


def workspace(nbytes: int) -> Buffer:
    """A library workspace of `nbytes`, with padding for alignment."""
    return Buffer(np.dtype(np.uint8), (nbytes + WORKSPACE_ALIGNMENT,), Allocation(nbytes + WORKSPACE_ALIGNMENT))


def aligned_address(data: Any) -> int:
    """The aligned address in a buffer of `workspace`."""
    return -(-address(data) // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT


def to_host(source: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """A host array with the bytes of a flat device array."""
    if not source.size:
        return np.zeros(shape, dtype)
    host: np.ndarray = source.copy_to_host()
    return host.view(np.uint8).view(dtype).reshape(shape)


def flat(base: Any, start: int, count: int, dtype: np.dtype[Any]) -> Any:
    """`count` elements of device bytes from byte `start` on, as `dtype`."""
    return base[start : start + count * dtype.itemsize].view(dtype)
