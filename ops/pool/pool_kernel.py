"""Native pooling over one or two axes: windows are reduced over rows first, then 16 windows along the row."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.jit.address import f32, share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import inner, range_kernel
from ...runtime.plan.kernel_api import Launch, Planned, Step, native
from ...runtime.simd.memory import load_even, load_f32, load_masked, store_f32, store_masked
from ...runtime.simd.vector import LANES, load, splat, stack_array
from ..kernels.conv.channels_vectorized import POOL_KERNELS, band_sizes, pool_is_faster, pool_scratch_vectors
from ..kernels.conv.depthwise import BAND
from ..kernels.conv.problem import PARTS_FACTOR
from ..kernels.gemm.register_tile import VECTOR
from ..kernels.half_via_f32 import via_f32
from ..kernels.pool.max_pool_uint8 import LARGEST_BYTES
from ..kernels.pool.pool_2x2_3x3 import LINES, SQUARES, largest, seen, summed
from ..kernels.pool.problem import Pool
from ..rules.sliding_window import window
from .global_pool import global_average_pool
from .pool import average_pool

F32 = np.dtype(np.float32)


def _pooling(start: float, joined: Any, average: bool) -> Any:
    nothing = np.float32(start)

    @inner
    def across(line: Any, kernel: Any, stride: Any, dilation: Any) -> Any:
        """Sixteen windows of a row that begins at address `line`."""
        spare = stack_array(np.float32, 1)
        found = splat(nothing)
        for tap in range(kernel):
            place = line + 4 * tap * dilation
            if stride == 1:
                found = joined(found, load_f32(place))
            elif stride == 2:
                found = joined(found, load_even(place))
            else:
                for lane in range(LANES):
                    spare[lane] = f32(place)[lane * stride]
                found = joined(found, load(spare, 0))
        return found

    @inner
    def down(pool: Any, plane: Any, out_y: Any, line: Any) -> None:
        """The rows that a row of windows sees, joined into one."""
        height, width, dilation = pool.height, pool.width, pool.dilation_y
        begin = out_y * pool.stride_y - pool.pad_y
        first = (dilation - 1 - begin) // dilation if begin < 0 else 0
        last = min(pool.kernel_y, (height - 1 - begin) // dilation + 1)
        start, step = plane + 4 * (begin + first * dilation) * width, 4 * dilation * width
        whole = width - width % LANES
        for j in range(0, 4 * whole, 4 * LANES):
            found = splat(nothing)
            for tap in range(last - first):
                found = joined(found, load_f32(start + tap * step + j))
            store_f32(line + j, found)
        if whole < width:
            found, rest = splat(nothing), (1 << (width - whole)) - 1
            for tap in range(last - first):
                found = joined(found, load_masked(start + tap * step + 4 * whole, rest))
            store_masked(line + 4 * whole, found, rest)

    @range_kernel
    def pooled(pool: Pool, part: int, parts: int) -> None:
        """Bands of planes."""
        height, width, out_height, out_width = pool.height, pool.width, pool.out_height, pool.out_width
        kernel_x, stride_x, dilation_x = pool.kernel_x, pool.stride_x, pool.dilation_x
        pad_x, padded, wide, band = pool.pad_x, pool.padded, pool.wide, pool.band
        lines = pool.scratch + part * 4 * wide * (band + 1)
        counts = lines + 4 * wide * band
        for j in range(wide * band):
            f32(lines)[j] = nothing
        if average:
            for j in range(out_width):
                f32(counts)[j] = np.float32(seen(j, (width, kernel_x, stride_x, dilation_x, pad_x, pool.end_x), padded))
        bands = (out_height + band - 1) // band
        first, last = share(pool.planes * bands, part, parts)
        for unit in range(first, last):
            plane, begin = unit // bands, unit % bands * band
            rows = min(band, out_height - begin)
            for row in range(rows):
                down(pool, pool.x + 4 * plane * height * width, begin + row, lines + 4 * (row * wide + pad_x))
            for row in range(rows):
                line, target = lines + 4 * row * wide, pool.y + 4 * (plane * out_height + begin + row) * out_width
                high = np.float32(1)
                if average:
                    high = np.float32(
                        seen(
                            begin + row,
                            (height, pool.kernel_y, pool.stride_y, pool.dilation_y, pool.pad_y, pool.end_y),
                            padded,
                        )
                    )
                for j in range(0, out_width, LANES):
                    found = across(line + 4 * j * stride_x, kernel_x, stride_x, dilation_x)
                    if average:
                        found = found / (load_f32(counts + 4 * j) * splat(high))
                    if out_width - j >= LANES:
                        store_f32(target + 4 * j, found)
                    else:
                        store_masked(target + 4 * j, found, (1 << (out_width - j)) - 1)

    return pooled


_AVERAGE, _LARGEST = _pooling(0.0, summed, True), _pooling(-math.inf, largest, False)


@range_kernel(fastmath={"reassoc"})
def row_means(x: Address, y: Address, rows: int, count: int, part: int, parts: int) -> None:
    """Mean of each row."""
    x, y = f32(x), f32(y)
    first, last = share(rows, part, parts)
    for row in range(first, last):
        total = np.float32(0)
        for j in range(count):
            total += x[row * count + j]
        y[row] = total / np.float32(count)


@native(average_pool)
@via_f32
def plan_pool(step: Step) -> Planned:
    """Plan up to two spatial axes, max pooling of bytes too; NumPy computes indices and further axes."""
    x = step.inputs[0]
    if x is None or len(x.shape) not in (3, 4) or step.is_used(1):
        return None
    average = step.node.op is average_pool
    if x.dtype != F32 and (average or x.dtype.name not in LARGEST_BYTES):
        return None
    names = ("kernel_shape", "strides", "pads", "dilations", "auto_pad", "ceil_mode")
    axes = window(step.node.op.name, len(x.shape) - 2, *(step.attributes[name] for name in names)).axes(x.shape[2:])
    lines = [(axis.size, axis.out, axis.kernel, axis.stride, axis.dilation, axis.begin, axis.end) for axis in axes]
    if len(lines) == 1:
        lines.insert(0, (1, 1, 1, 1, 1, 0, 0))
    columns = [item for column in zip(*lines, strict=True) for item in column]
    y, planes = step.output(), x.shape[0] * x.shape[1]
    work = y.count * math.prod(line[2] for line in lines) * 1.5
    size, out, kernel, stride, dilation, begin, _ = lines[1]
    wide = max(size + begin, (-(-out // LANES) * LANES - 1) * stride + (kernel - 1) * dilation + 1) + 2 * LANES
    if (
        average
        and out == lines[0][1] == 1
        and math.prod(line[2] for line in lines) * planes == x.count
        and not any(columns[10:])
    ):
        return Launch(row_means, step.parts(planes, x.count * 0.3), x=x, y=y, rows=planes, count=x.count // planes)
    head = (x, y, planes, *columns, step.attributes.get("count_include_pad", 0))
    itemsize = x.dtype.itemsize
    square = (
        SQUARES.get((average, kernel, stride))
        if itemsize > 1 and lines[0][2:5] == lines[1][2:5] == (kernel, stride, 1)
        else None
    )
    if itemsize > 1 and square is None and pool_is_faster(planes, lines):
        wide, rows, read = band_sizes(lines)
        parts = step.parts(-(-planes // LANES) * -(-lines[0][1] // rows), work / 2)
        room = step.scratch(parts * VECTOR * pool_scratch_vectors(wide, read, rows, out))
        return Launch(POOL_KERNELS[average], parts, pool=Pool._make((*head, room, wide, rows)), read_rows=read)
    rows = max(1, min(lines[0][1], (BAND // itemsize if square is None else LINES) // wide))
    parts = step.parts(planes * -(-lines[0][1] // rows), work / 2 if itemsize > 1 else work / 8, PARTS_FACTOR)
    scratch = step.scratch(parts * itemsize * wide * (rows + 2))
    general = LARGEST_BYTES[x.dtype.name] if itemsize == 1 else _AVERAGE if average else _LARGEST
    return Launch(square or general, parts, pool=Pool._make((*head, scratch, wide, rows)))


@native(global_average_pool)
@via_f32
def plan_global_average(step: Step) -> Planned:
    """Compute the mean of each channel."""
    x = step.inputs[0]
    if x is None or x.dtype != F32 or len(x.shape) < 3:
        return None
    rows = x.shape[0] * x.shape[1]
    return Launch(row_means, step.parts(rows, x.count * 0.3), x=x, y=step.output(), rows=rows, count=x.count // rows)
