"""Native QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear between f32 and bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.jit.address import f32, i8, i32, share, u8
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ...runtime.simd.memory import lane_max, load_f32, maximum
from ...runtime.simd.vector import LANES, splat
from ..kernels.gemm.requantize import load_zero_point, round_to_byte
from .dynamic_quantize_linear import dynamic_quantize_linear
from .quantize_linear import dequantize_linear, quantize_linear

F32 = np.dtype(np.float32)
KINDS = {"uint8": 0, "int8": 1, "int32": 2}
CHUNK = 16384
"""Elements that one unit of work looks at."""


@range_kernel
def quantized_rows(
    x: Address,
    y: Address,
    rows: int,
    length: int,
    scales: Address,
    zeros: Address,
    count: int,
    signed: int,
    part: int,
    parts: int,
) -> None:
    """Values as bytes; scales and zero points are of `count` rows in turn."""
    x, scales = f32(x), f32(scales)
    low, high = (np.float32(-128), np.float32(127)) if signed != 0 else (np.float32(0), np.float32(255))
    pieces = (length + CHUNK - 1) // CHUNK
    first, last = share(rows * pieces, part, parts)
    for unit in range(first, last):
        row, begin = unit // pieces, unit % pieces * CHUNK
        scale, base = scales[row % count], row * length
        zero = np.float32(load_zero_point(zeros + row % count if zeros != 0 else zeros, signed))
        if signed != 0:
            for j in range(base + begin, base + min(length, begin + CHUNK)):
                i8(y)[j] = round_to_byte(x[j] / scale, zero, low, high)
        else:
            for j in range(base + begin, base + min(length, begin + CHUNK)):
                u8(y)[j] = round_to_byte(x[j] / scale, zero, low, high)


@range_kernel
def real_rows(
    x: Address,
    y: Address,
    rows: int,
    length: int,
    scales: Address,
    zeros: Address,
    count: int,
    kind: int,
    part: int,
    parts: int,
) -> None:
    """Integers of a kind as values; scales and zero points are of `count` rows in turn."""
    y, scales = f32(y), f32(scales)
    pieces = (length + CHUNK - 1) // CHUNK
    first, last = share(rows * pieces, part, parts)
    for unit in range(first, last):
        row, begin = unit // pieces, unit % pieces * CHUNK
        scale, base = scales[row % count], row * length
        end = base + min(length, begin + CHUNK)
        if kind == 2:
            zero = i32(zeros)[row % count] if zeros != 0 else np.int32(0)
            for j in range(base + begin, end):
                y[j] = np.float32(np.int32(i32(x)[j] - zero)) * scale
            continue
        zero = load_zero_point(zeros + row % count if zeros != 0 else zeros, kind)
        if kind == 1:
            for j in range(base + begin, end):
                y[j] = np.float32(np.int32(i8(x)[j]) - zero) * scale
        else:
            for j in range(base + begin, end):
                y[j] = np.float32(np.int32(u8(x)[j]) - zero) * scale


@range_kernel
def extremes(source: Address, count: int, found: Address, part: int, parts: int) -> None:
    """For each chunk of values the smallest and the largest, zero among them; NaN where one is NaN."""
    x, found = f32(source), f32(found)
    chunks = (count + CHUNK - 1) // CHUNK
    first, last = share(chunks, part, parts)
    for chunk in range(first, last):
        begin, end = chunk * CHUNK, min(count, chunk * CHUNK + CHUNK)
        whole = begin + (end - begin) // LANES * LANES
        below, above = splat(np.float32(0)), splat(np.float32(0))
        for j in range(begin, whole, LANES):
            values = load_f32(source + 4 * j)
            below, above = maximum(below, -values), maximum(above, values)
        low, high = lane_max(below), lane_max(above)
        for j in range(whole, end):
            low, high = maximum(low, -x[j]), maximum(high, x[j])
        found[2 * chunk], found[2 * chunk + 1] = -low, high


@range_kernel
def quantized_between(
    x: Address, count: int, found: Address, y: Address, scale_at: Address, zero_at: Address, part: int, parts: int
) -> None:
    """Values as bytes, their scale and zero point, from the extremes of the chunks."""
    x, found, y, scale_at, zero_at = f32(x), f32(found), u8(y), f32(scale_at), u8(zero_at)
    chunks = (count + CHUNK - 1) // CHUNK
    low, high = np.float32(0), np.float32(0)
    for chunk in range(chunks):
        one, other = found[2 * chunk], found[2 * chunk + 1]
        low = one if one < low or one != one else low
        high = other if other > high or other != other else high
    scale = (high - low) / np.float32(255) if high != low else np.float32(1)
    code = round_to_byte(-low / scale, np.float32(0), np.float32(0), np.float32(255))
    if part == 0:
        scale_at[0], zero_at[0] = scale, code
    zero = np.float32(code)
    first, last = share(chunks, part, parts)
    for j in range(first * CHUNK, min(count, last * CHUNK)):
        y[j] = round_to_byte(x[j] / scale, zero, np.float32(0), np.float32(255))


def dynamically(
    step: Step, x: Buffer, outputs: tuple[Buffer | None, ...] = (None, None, None)
) -> tuple[list[Launch], Buffer, Buffer, Buffer]:
    """Launches that quantize, and where codes, scale and zero point are."""
    codes, scale, zero = outputs
    codes = codes or step.scratch(x.count).view(x.shape)
    scale, zero = scale or step.scratch(4).view((), dtype=F32), zero or step.scratch(1).view(())
    chunks = -(-x.count // CHUNK)
    found = step.scratch(8 * chunks)
    launches = [
        Launch(extremes, step.parts(chunks, x.count / 4), source=x, count=x.count, found=found),
        Launch(
            quantized_between,
            step.parts(chunks, x.count / 2),
            x=x,
            count=x.count,
            found=found,
            y=codes,
            scale_at=scale,
            zero_at=zero,
        ),
    ]
    return launches, codes, scale, zero


@native(dynamic_quantize_linear)
def plan_dynamic(step: Step) -> Planned:
    """Plan f32 inputs."""
    x = step.inputs[0]
    if x is None or x.dtype != F32:
        return None
    outputs = tuple(step.output(index) if step.is_used(index) else None for index in range(3))
    return dynamically(step, x, outputs)[0]


def _rows(step: Step, x: Buffer, dtype: np.dtype[Any]) -> dict[str, Any] | None:
    """Rows, elements of a row, scales, zero points and their number, as kernels name them."""
    scale = step.inputs[1]
    zero = step.inputs[2] if len(step.inputs) > 2 else None
    axis = step.attributes["axis"] if step.attributes["axis"] is not None else 1
    if scale is None or scale.dtype != F32 or step.attributes.get("block_size"):
        return None
    if zero is not None and (zero.dtype != dtype or zero.count != scale.count):
        return None
    if scale.count == 1:
        return {"rows": 1, "length": x.count, "scales": scale, "zeros": 0 if zero is None else zero, "count": 1}
    if not -len(x.shape) <= axis < len(x.shape) or scale.shape != (x.shape[axis],):
        return None
    length = x.strides[axis % len(x.shape)]
    return {
        "rows": x.count // length,
        "length": length,
        "scales": scale,
        "zeros": 0 if zero is None else zero,
        "count": scale.count,
    }


@native(quantize_linear)
def plan_quantize(step: Step) -> Planned:
    """Plan f32 to 8-bit integers, computed in f32."""
    x, y = step.inputs[0], step.output()
    if (
        x is None
        or x.dtype != F32
        or y.dtype.name not in ("uint8", "int8")
        or step.attributes.get("precision", 0) not in (0, 1)
    ):
        return None
    rows = _rows(step, x, y.dtype)
    return (
        None
        if rows is None
        else Launch(quantized_rows, step.parts(_units(rows), x.count / 2), x=x, y=y, **rows, signed=KINDS[y.dtype.name])
    )


@native(dequantize_linear)
def plan_dequantize(step: Step) -> Planned:
    """Plan 8-bit integers and i32 to f32."""
    x, y = step.inputs[0], step.output()
    if x is None or x.dtype.name not in KINDS or y.dtype != F32:
        return None
    rows = _rows(step, x, x.dtype)
    return (
        None
        if rows is None
        else Launch(real_rows, step.parts(_units(rows), x.count / 2), x=x, y=y, **rows, kind=KINDS[x.dtype.name])
    )


def _units(rows: dict[str, Any]) -> int:
    return int(rows["rows"] * -(-rows["length"] // CHUNK))
