"""State arrays: one array [slots, ...] for each decoder state; memory is taken page by page, as tokens are written, and
slots whose sequences begin alike share the pages of their prefix."""

from __future__ import annotations

import contextlib
import itertools
import math
import mmap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....runtime.ir.graph import Value
from ...layers.sliding_window import window_of
from ..decoder_states import growing_axis, state_shape
from ..prefill_chunk import MAX_CHUNK
from .shared_pages import MAP_NORESERVE, MAX_MAPPINGS, MemoryFile, Part, Segment, can_share, map_zeros

BLOCK = 64
"""Tokens of a block: memory is counted, and prefixes are shared, in blocks."""
MAX_ROUNDING = 2048
"""Most tokens that the capacity of a slot is rounded up by, so that lines begin at pages."""


class Lines:
    """One state's array as lines of bytes, in which tokens lie one after another: [slots, lines, bytes].

    Attributes:
        token: bytes of a token in a line.
        is_ring: whether a line holds the last tokens only.
    """

    def __init__(self, array: np.ndarray, axis: int, *, is_ring: bool) -> None:
        self.count, self.is_ring = math.prod(array.shape[1:axis]), is_ring
        self.nbytes = array[0].nbytes // self.count
        self.token = self.nbytes // array.shape[axis]
        self.rows = array.view(np.uint8).reshape(len(array), self.count, self.nbytes)
        self._address = array.ctypes.data

    @property
    def has_pages(self) -> bool:
        """Whether each line begins at a page."""
        return self.nbytes % mmap.PAGESIZE == 0

    def pages(self, tokens: int) -> int:
        """Bytes of the whole pages that `tokens` tokens of a line fill."""
        return tokens * self.token // mmap.PAGESIZE * mmap.PAGESIZE if self.has_pages else 0

    def addresses(self, slot: int) -> range:
        """Offsets at which the lines of a slot begin."""
        first = self._address + slot * self.count * self.nbytes
        return range(first, first + self.count * self.nbytes, self.nbytes)


class StateArrays:
    """States of several sequences, each in its slot.

    Args:
        values: the states, graph inputs.
        dtypes: by name.
        capacity: most tokens of a slot; rounded up where lines begin at pages then.

    Attributes:
        arrays: [slots, ...] by name.
        capacity: tokens that a slot has room for.
        token_nbytes: bytes that a further token of a slot takes.
        row_nbytes: bytes of a slot whatever its tokens: recurrent states and ring buffers.
        ring: tokens of the shortest ring buffer; None without one.
        recurrent: whether any state is neither a KV cache nor a ring buffer.
    """

    def __init__(self, values: Sequence[Value], dtypes: Mapping[str, np.dtype[Any]], slots: int, capacity: int) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._maps: dict[str, mmap.mmap] = {}
        self._axes = {value.name: growing_axis(value) for value in values}
        self._lines: dict[str, Lines] = {}
        self._parts: list[tuple[Part, ...]] = [()] * slots
        self.capacity = _rounded(values, dtypes, capacity)
        self.token_nbytes = self.row_nbytes = 0
        rings: list[int] = []
        self.recurrent = False
        for value in values:
            shape, dtype = state_shape(value, slots, self.capacity, MAX_CHUNK), dtypes[value.name]
            self._allocate(value.name, shape, dtype)
            nbytes, axis = math.prod(shape[1:]) * dtype.itemsize, self._axes[value.name]
            if axis is not None:
                self.token_nbytes += nbytes // shape[axis]
                self._lines[value.name] = Lines(self.arrays[value.name], axis, is_ring=False)
                continue
            self.row_nbytes += nbytes
            ring = [index for index, dim in enumerate(value.shape or ()) if index and window_of(dim) is not None]
            rings += [shape[index] for index in ring]
            self.recurrent |= not ring
            if len(ring) == 1:
                self._lines[value.name] = Lines(self.arrays[value.name], ring[0], is_ring=True)
        self.ring = min(rings, default=None)
        self._shares = can_share() and not self.recurrent and any(lines.has_pages for lines in self._lines.values())

    def _allocate(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
        made = mmap.mmap(-1, max(math.prod(shape) * dtype.itemsize, 1), flags=flags)
        with contextlib.suppress(OSError):  # kernels without huge pages do not know it
            made.madvise(mmap.MADV_NOHUGEPAGE)
        self._maps[name] = made
        self.arrays[name] = np.frombuffer(made, dtype, math.prod(shape)).reshape(shape)

    def rows(self, first: int, count: int) -> dict[str, np.ndarray]:
        """The states of adjacent slots, as views."""
        return {name: array[first : first + count] for name, array in self.arrays.items()}

    def is_linear(self, reached: int) -> bool:
        """Whether token n of a sequence that reached so many tokens is at index n, in ring buffers, too."""
        return self.ring is None or reached <= self.ring

    def parts(self, slot: int) -> tuple[Part, ...]:
        """The shared prefix of a slot, in the order of its tokens."""
        return self._parts[slot]

    def shared(self, slot: int) -> int:
        """Tokens of a slot that are in pages which other slots may have, too."""
        parts = self._parts[slot]
        return parts[-1].end if parts else 0

    def clear(self, slot: int) -> None:
        """Zero a slot and give its pages back to the system."""
        self._unmap(slot, 0)
        for name, array in self.arrays.items():
            row = array[slot]
            first = slot * row.nbytes
            begin, end = (
                -(-first // mmap.PAGESIZE) * mmap.PAGESIZE,
                (first + row.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE,
            )
            if begin >= end:
                row[...] = 0
                continue
            flat = row.reshape(-1).view(np.uint8)
            flat[: begin - first] = flat[end - first :] = 0
            self._maps[name].madvise(mmap.MADV_DONTNEED, begin, end - begin)

    def copy(self, source: int, target: int, length: int, reached: int) -> None:
        """Give an empty slot the states of another one after `length` tokens, whole blocks of them in shared pages.

        Args:
            reached: tokens that the source was written to.
        """
        linear = self.is_linear(reached)
        if self._shares and linear:
            self._share(source, length)
            self._map(target, _parts_before(self._parts[source], length))
        shared = self.shared(target)
        for name, array in self.arrays.items():
            lines = self._lines.get(name)
            if lines is None or (lines.is_ring and not linear):
                array[target] = array[source]
                continue
            used = slice(lines.pages(shared), length * lines.token)
            lines.rows[target, :, used] = lines.rows[source, :, used]

    def swap(self, one: int, other: int, lengths: tuple[int, int], reached: int) -> None:
        """Exchange two slots that have `lengths` tokens; pages that both share stay.

        Args:
            reached: tokens that either was written to.
        """
        before = self._parts[one], self._parts[other]
        same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*before, strict=False)))
        common = before[0][same - 1].end if same else 0
        linear = self.is_linear(reached)
        kept: dict[str, tuple[np.ndarray, ...]] = {}
        for name, array in self.arrays.items():
            lines = self._lines.get(name)
            if lines is None or (lines.is_ring and not linear):
                kept[name] = array[one].copy(), array[other].copy()
                continue
            kept[name] = tuple(
                lines.rows[slot, :, lines.pages(self.shared(slot)) : length * lines.token].copy()
                for slot, length in zip((one, other), lengths, strict=True)
            )
        for slot in (one, other):
            self._unmap(slot, common)
        for slot, parts in zip((other, one), before, strict=True):
            self._map(slot, parts)
        for name, array in self.arrays.items():
            lines = self._lines.get(name)
            if lines is None or (lines.is_ring and not linear):
                array[other], array[one] = kept[name]
                continue
            for slot, length, content in zip((other, one), lengths, kept[name], strict=True):
                lines.rows[slot, :, lines.pages(self.shared(slot)) : length * lines.token] = content

    def truncate(self, slot: int, length: int) -> None:
        """Keep the states of a slot after `length` tokens, and share no pages of later ones."""
        parts = _parts_before(self._parts[slot], length)
        if parts == self._parts[slot]:
            return
        first = parts[-1].end if parts else 0
        kept = [lines.rows[slot, :, lines.pages(first) : length * lines.token].copy() for lines in self._lines.values()]
        self._unmap(slot, first)
        for lines, content in zip(self._lines.values(), kept, strict=True):
            lines.rows[slot, :, lines.pages(first) : length * lines.token] = content

    def _share(self, slot: int, length: int) -> None:
        """Move a slot's further whole blocks of `length` tokens to pages that can be shared."""
        begin, end = self.shared(slot), length // BLOCK * BLOCK
        if end <= begin or self._mappings * len(self._parts) > MAX_MAPPINGS:
            return
        offsets, size = {}, 0
        for name, lines in self._lines.items():
            offsets[name] = size
            size += lines.count * (lines.pages(end) - lines.pages(begin))
        if not size:
            return
        file = MemoryFile(size)
        for name, lines in self._lines.items():
            content = lines.rows[slot, :, lines.pages(begin) : lines.pages(end)]
            file.write(offsets[name], np.ascontiguousarray(content).reshape(-1).data)
        self._map(slot, (*self._parts[slot], Part(Segment(begin, end, file, offsets), end)))

    @property
    def _mappings(self) -> int:
        """Ranges of a slot's longest shared prefix, and of one more part."""
        parts = 1 + max(map(len, self._parts))
        return sum(lines.count for lines in self._lines.values()) * parts

    def _map(self, slot: int, parts: tuple[Part, ...]) -> None:
        """Map the parts of a prefix beyond those that a slot shares already."""
        for part in parts[len(self._parts[slot]) :]:
            segment = part.segment
            for name, lines in self._lines.items():
                begin, end, last = (lines.pages(tokens) for tokens in (segment.begin, part.end, segment.end))
                for line, address in enumerate(lines.addresses(slot)):
                    segment.file.map(address + begin, end - begin, segment.offsets[name] + line * (last - begin))
        self._parts[slot] = parts

    def _unmap(self, slot: int, length: int) -> None:
        """Replace the shared pages of a slot after the first `length` tokens, a block's end, by zeros."""
        parts = _parts_before(self._parts[slot], length)
        if parts == self._parts[slot]:
            return
        for lines in self._lines.values():
            begin, end = lines.pages(length), lines.pages(self.shared(slot))
            for address in lines.addresses(slot):
                map_zeros(address + begin, end - begin)
        self._parts[slot] = parts


def _parts_before(parts: Sequence[Part], length: int) -> tuple[Part, ...]:
    """Parts of the whole blocks of the first `length` tokens."""
    last = length // BLOCK * BLOCK
    return tuple(Part(part.segment, min(part.end, last)) for part in parts if part.segment.begin < last)


def _rounded(values: Sequence[Value], dtypes: Mapping[str, np.dtype[Any]], capacity: int) -> int:
    """A capacity with which lines begin at pages, unless that is much more."""
    step = 1
    for value in values:
        axis = growing_axis(value)
        if axis is not None:
            token = math.prod(state_shape(value, 1, 1, MAX_CHUNK)[axis + 1 :]) * dtypes[value.name].itemsize
            step = math.lcm(step, math.lcm(token, mmap.PAGESIZE) // max(token, 1))
    return -(-capacity // step) * step if can_share() and step <= MAX_ROUNDING else capacity
