"""Storage: where a tensor's bytes are (memory, file region, computed) and how a range of them is read."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Hashable
from typing import Protocol

from .file import Source


class Storage(Protocol):
    """Bytes that can be read by range.

    Attributes:
        sequential: whether reading backwards costs reading all from the start; such storage is read by one thread, in
            order.
        step: the smallest range that can be read without reading more than is returned.
        key: equal for storages that are known to hold the same bytes of the same file, None where that is not known.
    """

    @property
    def nbytes(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def sequential(self) -> bool: ...
    @property
    def key(self) -> Hashable: ...
    def read(self, start: int, stop: int) -> bytes | memoryview:
        """Bytes `start` to `stop`; both multiples of `step`, or the end."""
        ...


class Held:
    """Bytes in memory."""

    step = 1
    sequential = False
    key = None

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.data = memoryview(data).cast("B")

    @property
    def nbytes(self) -> int:
        return len(self.data)

    def read(self, start: int, stop: int) -> memoryview:
        return self.data[start:stop]


class Mapped(Held):
    """A range of a file, memory-mapped (`Source.mapped`)."""

    def __init__(self, region: Region) -> None:
        super().__init__(region.source.mapped()[region.offset : region.offset + region.nbytes])
        self.key = region.key  # type: ignore[assignment]


class Region:
    """A range of an open file, the tensor's bytes as stored."""

    step = 1
    sequential = False

    def __init__(self, source: Source, offset: int, nbytes: int) -> None:
        self.source = source
        self.offset = offset
        self.nbytes = nbytes

    def read(self, start: int, stop: int) -> bytes:
        self.source.check_unchanged()
        return self.source.read(self.offset + start, stop - start)

    def read_into(self, start: int, buffer: memoryview) -> None:
        """Fill `buffer` with the bytes from `start`."""
        self.source.check_unchanged()
        self.source.read_into(self.offset + start, buffer)

    @property
    def key(self) -> Hashable:
        return (self.source.identity, self.offset, self.nbytes)


class _Room(threading.local):
    """Memory that a thread reads files into."""

    data = bytearray()


_ROOM = _Room()


def read_briefly(storage: Storage, start: int, stop: int) -> bytes | memoryview:
    """As ``storage.read``, but what comes from a file is gone with the thread's next call: fresh pages would cost more
    than the reading."""
    if not isinstance(storage, Region):
        return storage.read(start, stop)
    if len(_ROOM.data) < stop - start:
        _ROOM.data = bytearray(stop - start)
    data = memoryview(_ROOM.data)[: stop - start]
    storage.read_into(start, data)
    return data


class Derived:
    """Bytes computed when they are asked for, usually from other storage, which says whether they are sequential."""

    def __init__(
        self,
        nbytes: int,
        step: int,
        read: Callable[[int, int], bytes | memoryview],
        key: Hashable = None,
        *,
        sequential: bool = False,
    ) -> None:
        self.sequential = sequential
        self.key = key
        self.nbytes = nbytes
        self.step = step
        self.read = read


SPAN = 2**18
"""Bytes that are asked for at once where they take long to compute."""


class Costly:
    """Bytes that take longer to compute than to read back, encoded blocks above all: a checksum stays of every range
    that was read.

    Attributes:
        span: bytes that are best asked for at once.
    """

    key = None

    def __init__(
        self,
        nbytes: int,
        step: int,
        read: Callable[[int, int], bytes | memoryview],
        *,
        sequential: bool = False,
        checksum: Callable[[bytes | memoryview], int] = zlib.crc32,
        span: int = SPAN,
    ) -> None:
        self.sequential = sequential
        self.checksum = checksum
        self.span = span
        self.nbytes = nbytes
        self.step = step
        self.checksums: dict[tuple[int, int], int] = {}
        self._read = read

    def read(self, start: int, stop: int) -> bytes | memoryview:
        data = self._read(start, stop)
        self.checksums[start, stop] = self.checksum(data)
        return data

    def covered(self) -> list[tuple[int, int]] | None:
        """Ranges with a checksum that follow one another from the first byte to the last; None where some bytes were
        not read."""
        ranges: list[tuple[int, int]] = []
        for start, stop in sorted(self.checksums, key=lambda span: (span[0], -span[1])):
            if start == (ranges[-1][1] if ranges else 0):
                ranges.append((start, stop))
        return ranges if ranges and ranges[-1][1] == self.nbytes else None


class Stream:
    """Bytes that can only be produced from the start, such as a deflated archive member.

    `open` returns a function that gives the next `n` bytes (fewer only at the end); reading backwards opens again.
    """

    step = 1
    sequential = True
    key = None

    def __init__(self, nbytes: int, open: Callable[[], Callable[[int], bytes]]) -> None:
        self.nbytes = nbytes
        self._open = open
        self._next: Callable[[int], bytes] | None = None
        self._position = 0
        self._lock = threading.Lock()

    def read(self, start: int, stop: int) -> bytes:
        with self._lock:
            if self._next is None or start < self._position:
                self._next, self._position = self._open(), 0
            while self._position < start:
                self._position += len(self._next(min(1 << 20, start - self._position)))
            data = self._next(stop - start)
            self._position += len(data)
            if self._position == self.nbytes:
                self._next = None
            return data


def window(storage: Storage, base: int, size: int) -> Derived:
    """A range of bytes, read at the steps of the storage that has them."""

    def read(first: int, last: int) -> memoryview:
        low = (base + first) // storage.step * storage.step
        high = min(storage.nbytes, -(-(base + last) // storage.step) * storage.step)
        return memoryview(storage.read(low, high))[base + first - low : base + last - low]

    return Derived(size, 1, read, sequential=storage.sequential)
