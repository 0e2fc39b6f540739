"""Checksums of what was computed at great cost, so that reading it back shows whether it was written as it should be."""

from __future__ import annotations

from .machine import Stored

KERNEL = Stored("runtime.checksum_kernel", "checksum")


def checksum(data: bytes | memoryview) -> int:
    """64 bits that differ for data of the same length that differ, but for one in four billion; see the kernel."""
    import numpy

    return KERNEL(numpy.frombuffer(data, numpy.uint8).ctypes.data, len(data), 0)[2] if len(data) else 0
