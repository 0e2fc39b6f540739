"""Sliding windows along spatial axes, for convolution, pooling and their transposes.

Nothing is padded and nothing copied: for each tap of the kernel, `overlap` says which positions of the output have that
tap inside the input, and where it lies there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.ir.graph import Dim
from ...runtime.ir.shape_inference import Shape
from .output_limit import allowed
from .shape_rules import shape_error

Part = tuple[slice, ...]

AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True)
class Axis:
    """One spatial axis: `size` elements, of which output `i` sees ``i * stride + tap * dilation - begin`` for each tap
    below `kernel`."""

    size: int
    kernel: int
    stride: int
    dilation: int
    begin: int
    end: int
    out: int

    @property
    def reached(self) -> range:
        """The taps that lie inside the input for some output; never more than positions of the input and the output."""
        low = -(-(self.begin - (self.out - 1) * self.stride) // self.dilation)
        return range(max(0, low), min(self.kernel, (self.size - 1 + self.begin) // self.dilation + 1))

    def overlap(self, tap: int, start: int = 0, stop: int | None = None) -> tuple[slice, slice]:
        """Outputs of ``[start, stop)`` whose tap lies inside the input, counted from `start`, and the elements that
        they see there."""
        shift = tap * self.dilation - self.begin
        low = max(start, -(shift // self.stride))
        high = max(low, min(self.out if stop is None else stop, (self.size - 1 - shift) // self.stride + 1))
        first = low * self.stride + shift
        return slice(low - start, high - start), slice(
            first, first + (high - low - 1) * self.stride + 1 if high > low else first, self.stride
        )


def spread(
    values: Sequence[int] | None, rank: int, count: int, default: int, what: str, name: str, least: int
) -> list[int]:
    """A list attribute with its default; FormatError unless it has `count` values of at least `least`."""
    found = [default] * count if values is None or not len(values) else [int(value) for value in values]
    if len(found) != count or any(value < least for value in found):
        raise shape_error(what, f"{name} {found} does not fit {rank} spatial axes")
    return found


@dataclass(frozen=True)
class Window:
    """The attributes of a window, checked, for any input size."""

    what: str
    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]
    auto_pad: str = "NOTSET"
    ceil: bool = False

    def length(self, axis: int, size: Dim) -> Dim:
        """Output length along an axis of an input of that size."""
        stride, reach = self.strides[axis], self.dilations[axis] * (self.kernel[axis] - 1) + 1
        if self.auto_pad.startswith("SAME"):
            return -(-size // stride) if isinstance(size, int) else size if stride == 1 else None
        begin, end = (0, 0) if self.auto_pad == "VALID" else (self.pads[axis], self.pads[axis + len(self.kernel)])
        if not isinstance(size, int):
            return size if stride == 1 and begin + end == reach - 1 else None
        left = size + begin + end - reach
        if left < 0 and not (self.ceil and size and left > -stride):
            raise shape_error(
                self.what,
                f"a kernel that reaches over {reach} elements does not fit into {size} with {begin} + {end} of padding",
            )
        found = left // stride + 1
        if self.ceil and left % stride and found * stride < size + begin:
            found += 1
        return found

    def axes(self, sizes: Sequence[int]) -> list[Axis]:
        """The axes of an input."""
        return [self._axis(axis, int(size)) for axis, size in enumerate(sizes)]

    def _axis(self, axis: int, size: int) -> Axis:
        kernel, stride, dilation = self.kernel[axis], self.strides[axis], self.dilations[axis]
        out = self.length(axis, size)
        assert isinstance(out, int)
        begin, end = (0, 0) if self.auto_pad == "VALID" else (self.pads[axis], self.pads[axis + len(self.kernel)])
        if self.auto_pad.startswith("SAME"):
            total = max((out - 1) * stride + dilation * (kernel - 1) + 1 - size, 0)
            begin = total // 2 if self.auto_pad == "SAME_UPPER" else total - total // 2
            end = total - begin
        return Axis(size, kernel, stride, dilation, begin, end, out)

    def lengths(self, spatial: Shape) -> Shape:
        """Output lengths for spatial dims that may be symbolic."""
        return tuple(self.length(axis, size) for axis, size in enumerate(spatial))


def window(
    what: str,
    rank: int,
    kernel: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Window:
    """The window of a node named `what` over `rank` spatial axes; FormatError where the attributes do not fit."""
    if rank < 1:
        raise shape_error(what, "the input needs a batch axis, a channel axis and at least one spatial axis")
    mode = auto_pad or "NOTSET"
    if mode not in AUTO_PADS:
        raise shape_error(what, f"auto_pad {mode!r} is not one of {', '.join(AUTO_PADS)}")
    return Window(
        what,
        spread(kernel, rank, rank, 1, what, "kernel_shape", 1),
        spread(strides, rank, rank, 1, what, "strides", 1),
        spread(dilations, rank, rank, 1, what, "dilations", 1),
        spread(pads, rank, 2 * rank, 0, what, "pads", 0),
        mode,
        bool(ceil_mode),
    )


def taps(axes: Sequence[Axis], block: Part | None = None) -> Iterator[tuple[tuple[int, ...], Part, Part]]:
    """Every tap of a kernel: its position, the outputs (of `block`, counted from its start) that see it inside the
    input, and what they see."""
    bounds = [(0, axis.out) for axis in axes] if block is None else [(part.start, part.stop) for part in block]
    overlaps = [
        {tap: axis.overlap(tap, *bound) for tap in axis.reached} for axis, bound in zip(axes, bounds, strict=True)
    ]
    for position in itertools.product(*overlaps):
        pairs = [overlap[tap] for overlap, tap in zip(overlaps, position, strict=True)]
        if all(out.stop > out.start for out, _ in pairs):
            yield position, tuple(out for out, _ in pairs), tuple(seen for _, seen in pairs)


def blocks(lengths: Sequence[int], cells: int) -> Iterator[Part]:
    """Parts that cover an array of these lengths, none of more than `cells` elements, whole along the last axes."""
    extents: list[int] = []
    for length in reversed(lengths):
        extent = max(1, min(length, cells))
        cells //= extent
        extents.insert(0, extent)
    for corner in itertools.product(
        *(range(0, length, extent) for length, extent in zip(lengths, extents, strict=True))
    ):
        yield tuple(
            slice(start, min(start + extent, length))
            for start, extent, length in zip(corner, extents, lengths, strict=True)
        )


def fold(combine: Callable[..., Any], x: np.ndarray, axes: Sequence[Axis], start: float, first: int = 2) -> np.ndarray:
    """Combine all elements of each window over the axes from `first` on, one after another; `start` is the neutral
    element."""
    for index, axis in enumerate(axes, first):
        ahead = (slice(None),) * index
        made = np.full(
            allowed((*x.shape[:index], axis.out, *x.shape[index + 1 :]), x.itemsize, "a pooling window"), start, x.dtype
        )
        for tap in axis.reached:
            out, seen = axis.overlap(tap)
            if out.stop > out.start:
                place = made[(*ahead, out)]
                combine(place, x[(*ahead, seen)], out=place)
        x = made
    return x
