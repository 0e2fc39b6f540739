"""Native Gather, GatherElements, GatherND, ScatterElements and ScatterND.

An index out of range sets the bailout flag; the run is repeated in NumPy, which raises the error.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.jit.address import i32, i64, share, u8, u16, u32, u64
from ...runtime.jit.kernel_arguments import Address, Words
from ...runtime.jit.range_kernel import RangeKernel, inlined, range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, View, native
from ...runtime.tensor.dtype import BlockType
from ..kernels.strided_copy import COPIES, copy
from ..kernels.zero_fill import zeros
from ..quants.llvm import rows
from .gather import gather, gather_elements, gather_nd
from .gather_rows import gather_rows
from .scatter import scatter, scatter_elements, scatter_nd

INDICES = ("int64", "int32")


@inlined
def index_at(address: Any, nbytes: Any, at: Any, length: Any, bailout: Any) -> Any:
    """An index of `nbytes` bytes, counted from the front; zero, and the flag `bailout` set, where it is outside of
    `length`."""
    found = i64(address)[at] if nbytes == 8 else np.int64(i32(address)[at])
    found = found + length if found < 0 else found
    if found < 0 or found >= length:
        i64(bailout)[0] = 1
        return np.int64(0)
    return found


def _gathering(pointer: Any) -> RangeKernel:
    @range_kernel
    def gathered(
        source: Address,
        indices: Address,
        target: Address,
        stacks: int,
        length: int,
        count: int,
        inner: int,
        nbytes: int,
        bailout: Address,
        part: int,
        parts: int,
    ) -> None:
        """Entries of `inner` elements of stacks, along an axis of that length, by `count` indices of `nbytes` bytes."""
        source, target = pointer(source), pointer(target)
        first, last = share(stacks * count, part, parts)
        stack, at = first // count, first % count
        for row in range(first, last):
            index = index_at(indices, nbytes, at, length, bailout)
            begin = (stack * length + index) * inner
            end = row * inner
            for j in range(inner):
                target[end + j] = source[begin + j]
            at += 1
            if at == count:
                stack, at = stack + 1, 0

    return gathered


def _by_element(pointer: Any, scatters: bool) -> RangeKernel:
    @range_kernel
    def elements(
        source: Address,
        indices: Address,
        target: Address,
        rows: int,
        count: int,
        nbytes: int,
        length: int,
        stride: int,
        step: int,
        bailout: Address,
        outer: int,
        lengths: Words,
        strides: Words,
        part: int,
        parts: int,
    ) -> None:
        """Rows of `count` indices of `nbytes` bytes along an axis of a length and a stride; `step` is the stride within
        a row, and outer dims, the last one first, have lengths and strides. Where elements are scattered, the source
        has one for each index."""
        source, target = pointer(source), pointer(target)
        first, last = share(rows, part, parts)
        for row in range(first, last):
            rest, base = row, 0
            for axis in range(outer):
                index = rest % lengths[axis]
                rest = rest // lengths[axis]
                base += index * strides[axis]
            for j in range(count):
                place = base + index_at(indices, nbytes, row * count + j, length, bailout) * stride + j * step
                if scatters:
                    target[place] = source[row * count + j]
                else:
                    target[row * count + j] = source[place]

    return elements


def _by_tuple(pointer: Any, scatters: bool) -> RangeKernel:
    @range_kernel
    def tuples(
        source: Address,
        indices: Address,
        target: Address,
        count: int,
        each: int,
        batch: int,
        nbytes: int,
        bailout: Address,
        inner: int,
        depth: int,
        lengths: Words,
        strides: Words,
        part: int,
        parts: int,
    ) -> None:
        """Entries of `inner` elements by tuples of `depth` indices of `nbytes` bytes into axes with lengths and
        strides; `each` tuples belong to a batch of `batch` elements. Where entries are scattered, the source has one
        for each tuple."""
        source, target = pointer(source), pointer(target)
        first, last = share(count, part, parts)
        for row in range(first, last):
            place = row // each * batch
            for axis in range(depth):
                place += index_at(indices, nbytes, row * depth + axis, lengths[axis], bailout) * strides[axis]
            other = row * inner
            if scatters:
                for j in range(inner):
                    target[place + j] = source[other + j]
            else:
                for j in range(inner):
                    target[other + j] = source[place + j]

    return tuples


POINTERS = {1: u8, 2: u16, 4: u32, 8: u64}
GATHERED = {size: _gathering(pointer) for size, pointer in POINTERS.items()}
ELEMENTS = {
    (size, scatters): _by_element(pointer, scatters) for size, pointer in POINTERS.items() for scatters in (False, True)
}
TUPLES = {
    (size, scatters): _by_tuple(pointer, scatters) for size, pointer in POINTERS.items() for scatters in (False, True)
}


def _indexed(data: Buffer | None, indices: Buffer | None) -> bool:
    return data is not None and indices is not None and data.dtype.itemsize in COPIES and indices.dtype.name in INDICES


def _within(indices: tuple[int, ...], shape: tuple[int, ...], axis: int) -> bool:
    """Whether indices fit the data except along `axis`."""
    return len(indices) == len(shape) and all(
        one <= other or at == axis for at, (one, other) in enumerate(zip(indices, shape, strict=True))
    )


def _decoded(step: Step, x: Buffer, indices: Buffer, dtype: BlockType) -> Planned:
    """Rows of quantized data, whose buffer has their bytes."""
    if dtype.name not in rows():
        return None
    y = step.output()
    (height, row_bytes), columns = x.shape, y.shape[-1]
    kernel = gather_rows(dtype.name, indices.dtype.itemsize)
    return Launch(
        kernel,
        step.parts(indices.count, y.count / 4),
        source=x,
        indices=indices,
        target=y,
        count=indices.count,
        height=height,
        row_bytes=row_bytes,
        length=columns,
        bailout=step.bailout,
    )


@native(gather)
def plan_gather(step: Step) -> Planned:
    """Plan lookups of entries; constant indices of adjacent entries make a view."""
    x, indices = step.inputs
    if x is None or indices is None or not _indexed(x, indices):
        return None
    axis = step.attributes["axis"] % len(x.shape)
    held = step.node.inputs[0]
    if held is not None and isinstance(held.dtype, BlockType):
        return _decoded(step, x, indices, held.dtype) if axis == 0 and len(x.shape) == 2 else None
    stacks, length, inner = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    known = step.constant(1)
    if known is not None:
        flat = known.reshape(-1).astype(np.int64)
        flat = np.where(flat < 0, flat + length, flat)
        if flat.min() < 0 or flat.max() >= length:
            return None
        if (np.diff(flat) == 1).all():
            shape = (stacks, flat.size, inner)
            place = x.view(shape, int(flat[0]) * inner)
            if stacks == 1:
                return View(place)
            y = step.output().view(shape)
            return copy(step, place, y, shape, (length * inner, inner, 1), y.strides)
    count = stacks * indices.count
    return Launch(
        GATHERED[x.dtype.itemsize],
        step.parts(count, count * (inner * 0.5 + 4)),
        source=x,
        indices=indices,
        target=step.output(),
        stacks=stacks,
        length=length,
        count=indices.count,
        inner=inner,
        nbytes=indices.dtype.itemsize,
        bailout=step.bailout,
    )


def _elements(
    step: Step, source: Buffer, indices: Buffer, target: Buffer, shape: tuple[int, ...], scatters: bool
) -> Launch:
    """Elements of a tensor of that shape, one for each index."""
    axis = step.attributes["axis"] % len(shape)
    strides = list(Buffer(source.dtype, shape, source.allocation).strides)
    stride = strides[axis]
    strides[axis] = 0
    rows, count = math.prod(indices.shape[:-1]), indices.shape[-1]
    parts = 1 if scatters else step.parts(rows, indices.count * 4.0)
    return Launch(
        ELEMENTS[source.dtype.itemsize, scatters],
        parts,
        source=source,
        indices=indices,
        target=target,
        rows=rows,
        count=count,
        nbytes=indices.dtype.itemsize,
        length=shape[axis],
        stride=stride,
        step=strides[-1],
        bailout=step.bailout,
        outer=len(shape) - 1,
        lengths=indices.shape[:-1][::-1],
        strides=strides[:-1][::-1],
    )


@native(gather_elements)
def plan_gather_elements(step: Step) -> Planned:
    """Plan i64 and i32 indices."""
    x, indices = step.inputs
    if x is None or indices is None or not _indexed(x, indices) or not x.shape:
        return None
    if not _within(indices.shape, x.shape, step.attributes["axis"] % len(x.shape)):
        return None
    return _elements(step, x, indices, step.output(), x.shape, False)


def _tuples(
    step: Step, source: Buffer, indices: Buffer, target: Buffer, shape: tuple[int, ...], batch: int, scatters: bool
) -> Launch:
    """Entries of a tensor of that shape, one for each tuple of indices."""
    depth = indices.shape[-1]
    strides = Buffer(source.dtype, shape, source.allocation).strides
    count, each = indices.count // depth, math.prod(indices.shape[batch:-1])
    inner = math.prod(shape[batch + depth :])
    parts = 1 if scatters else step.parts(count, count * (inner * 0.5 + 4.0 * depth))
    return Launch(
        TUPLES[source.dtype.itemsize, scatters],
        parts,
        source=source,
        indices=indices,
        target=target,
        count=count,
        each=each,
        batch=math.prod(shape[batch:]),
        nbytes=indices.dtype.itemsize,
        bailout=step.bailout,
        inner=inner,
        depth=depth,
        lengths=shape[batch : batch + depth],
        strides=strides[batch : batch + depth],
    )


@native(gather_nd)
def plan_gather_nd(step: Step) -> Planned:
    """Plan i64 and i32 indices."""
    x, indices = step.inputs
    batch = step.attributes["batch_dims"]
    if x is None or indices is None or not _indexed(x, indices) or not 0 <= batch < len(indices.shape):
        return None
    if not 0 < indices.shape[-1] <= len(x.shape) - batch or indices.shape[:batch] != x.shape[:batch]:
        return None
    return _tuples(step, x, indices, step.output(), x.shape, batch, False)


def base_of(step: Step, x: Buffer) -> tuple[Buffer, list[Launch]]:
    """The output with the elements of `x`, the first input, which it takes over where nothing else uses them."""
    if step.may_overwrite(x):
        step.outputs[0] = x
        return x, []
    y, known = step.output(), step.constant(0)
    if known is not None and not known.reshape(-1).view(np.uint8).any():
        return y, [zeros(step, y)]
    return y, [copy(step, x, y, (x.count,), (1,), (1,))]


@native(scatter_elements, scatter)
def plan_scatter_elements(step: Step) -> Planned:
    """Plan scatters without reduction; the last of several updates of one element stays."""
    x, indices, updates = step.inputs
    if (
        x is None
        or indices is None
        or updates is None
        or not _indexed(x, indices)
        or not x.shape
        or updates.dtype != x.dtype
    ):
        return None
    if indices.shape != updates.shape or not _within(indices.shape, x.shape, step.attributes["axis"] % len(x.shape)):
        return None
    if step.attributes.get("reduction", "none") != "none":
        return None
    y, launches = base_of(step, x)
    return [*launches, _elements(step, updates, indices, y, x.shape, True)]


@native(scatter_nd)
def plan_scatter_nd(step: Step) -> Planned:
    """Plan scatters without reduction; the last of several updates of one element stays."""
    x, indices, updates = step.inputs
    if (
        x is None
        or indices is None
        or updates is None
        or not _indexed(x, indices)
        or updates.dtype != x.dtype
        or not indices.shape
    ):
        return None
    depth = indices.shape[-1]
    if (
        not 0 < depth <= len(x.shape)
        or updates.shape != (*indices.shape[:-1], *x.shape[depth:])
        or step.attributes["reduction"] != "none"
    ):
        return None
    y, launches = base_of(step, x)
    return [*launches, _tuples(step, updates, indices, y, x.shape, 0, True)]
