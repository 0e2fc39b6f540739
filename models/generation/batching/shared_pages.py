"""Shared pages: a prefix that several sequences begin with is in memory once, mapped copy-on-write into the address
range of each (as in vAttention, Prabhu et al. 2024, arXiv:2405.04437); kernels read contiguous rows as before."""

from __future__ import annotations

import ctypes
import io
import mmap
import os
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.process_cache import PROCESS, process_cache

MAP_FIXED, MAP_NORESERVE = 0x10, 0x4000
"""Flags of Linux without names in the standard library: map at the very address, claim no memory."""
FAILED = ctypes.c_void_p(-1).value
MAX_MAPPINGS = 16384
"""Mapped ranges of all sequences; Linux allows a process 65,530."""


@process_cache
def can_share() -> bool:
    """Whether the system has files in memory that a process maps where it likes: Linux on 64 bits."""
    return hasattr(os, "memfd_create") and ctypes.sizeof(ctypes.c_void_p) == 8


@process_cache(kept=PROCESS)
def _mmap() -> Any:
    call = ctypes.CDLL(None, use_errno=True).mmap
    call.restype = ctypes.c_void_p
    call.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    )  # fmt: skip
    return call


def _map(address: int, nbytes: int, flags: int, file: int, offset: int) -> None:
    """Replace a range of pages. OSError where the system refuses."""
    flags |= mmap.MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE
    if _mmap()(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, file, offset) == FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def map_zeros(address: int, nbytes: int) -> None:
    """Replace a range of pages by zeros without memory."""
    if nbytes:
        _map(address, nbytes, mmap.MAP_ANONYMOUS, -1, 0)


class MemoryFile:
    """A file in memory; its pages are freed when it is dropped and no range maps them."""

    def __init__(self, nbytes: int) -> None:
        self._file = io.FileIO(os.memfd_create("prefix", os.MFD_CLOEXEC), "r+")
        self._file.truncate(nbytes)

    def write(self, offset: int, content: memoryview) -> None:
        """Write bytes at an offset."""
        while content:
            count = os.pwrite(self._file.fileno(), content, offset)
            offset, content = offset + count, content[count:]

    def map(self, address: int, nbytes: int, offset: int) -> None:
        """Replace a range of pages by those of the file; the system copies a page that is written to."""
        if nbytes:
            _map(address, nbytes, 0, self._file.fileno(), offset)


@dataclass(frozen=True, eq=False)
class Segment:
    """States of consecutive tokens of a prefix.

    Attributes:
        begin, end: the tokens.
        file: of whole pages.
        offsets: where the file holds the lines of each state.
    """

    begin: int
    end: int
    file: MemoryFile
    offsets: dict[str, int]


@dataclass(frozen=True)
class Part:
    """The tokens of a segment that a sequence maps: all, or those before `end`."""

    segment: Segment
    end: int
