"""Native RotaryEmbedding of f32, f16 and bf16, of the standard and of onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.kernel import inner, range_kernel
from ...runtime.launch import Buffer, Launch, Planned, Step, native
from ...runtime.native import f32, i64, share
from ...runtime.simd import LANES
from ..contrib.rotary_embedding import rotary_embedding as contrib_rotary
from ..math.lane_kernel import KINDS, fma, load_single, narrow, store_single, widen
from .attention_kernel import Heads, heads_of
from .rotary import rotary_embedding


@inner
def _halves(x: Any, cos: Any, sin: Any, half: Any) -> None:
    """Turn element i with i + half, f32 in place."""
    whole = half - half % LANES
    for j in range(0, whole, LANES):
        one, two = load_single(x + 4 * j), load_single(x + 4 * (half + j))
        c, s = load_single(cos + 4 * j), load_single(sin + 4 * j)
        store_single(x + 4 * j, fma(c, one, -(s * two)))
        store_single(x + 4 * (half + j), fma(s, one, c * two))
    row, cosines, sines = f32(x), f32(cos), f32(sin)
    for j in range(whole, half):
        a, b = row[j], row[half + j]
        row[j], row[half + j] = cosines[j] * a - sines[j] * b, sines[j] * a + cosines[j] * b


@inner
def _neighbours(x: Any, cos: Any, sin: Any, half: Any) -> None:
    """Turn element 2 i with 2 i + 1, f32 in place."""
    row, cosines, sines = f32(x), f32(cos), f32(sin)
    for j in range(half):
        a, b = row[2 * j], row[2 * j + 1]
        row[2 * j], row[2 * j + 1] = cosines[j] * a - sines[j] * b, sines[j] * a + cosines[j] * b


@range_kernel
def turned(args: Any, part: Any, parts: Any) -> None:
    """Heads of one position: x and y with kind and steps; batch, rows, heads, size, half; cosines, sines, their kind; positions; scratch."""
    x, x_kind, x_batch, x_head, x_row = args[0], args[1], args[2], args[3], args[4]
    y, y_kind, y_batch, y_head, y_row = args[5], args[6], args[7], args[8], args[9]
    batch, heads, rows, size, half, interleaved = args[10], args[11], args[12], args[13], args[14], args[15]
    cos, sin, kind, cache_batch, cache_row = args[16], args[17], args[18], args[19], args[20]
    positions, alone, longest, refusal = args[21], args[22], args[23], args[24]
    scratch = args[25] + part * 4 * (size + 2 * half + 3 * LANES)
    cosines = scratch + 4 * (size + LANES)
    sines = cosines + 4 * (half + LANES)
    one = np.float32(1)
    first, last = share(batch * rows, part, parts)
    for unit in range(first, last):
        image, row = unit // rows, unit % rows
        place = image * cache_batch + row * cache_row
        if positions != 0:
            position = i64(positions)[0] + row if alone != 0 else i64(positions)[unit]
            if position < 0 or position >= longest:
                i64(refusal)[0] = 1
                position = 0
            place = position * cache_row
        widen(kind, cos + place, cosines, half, one)
        widen(kind, sin + place, sines, half, one)
        for head in range(heads):
            widen(x_kind, x + image * x_batch + head * x_head + row * x_row, scratch, size, one)
            if interleaved != 0:
                _neighbours(scratch, cosines, sines, half)
            else:
                _halves(scratch, cosines, sines, half)
            narrow(y_kind, scratch, y + image * y_batch + head * y_head + row * y_row, size, one)


def turn(
    step: Step, x: Heads, y: Heads, caches: tuple[Buffer, Buffer], positions: Buffer | None, interleaved: int, turned_size: int
) -> list[Launch] | None:
    """Launches that turn the first `turned_size` elements of every head; None where shapes or dtypes do not fit.

    Args:
        caches: cosines and sines, [positions, half], or [batch, rows, half] where there are no positions.
        positions: [batch, rows], or one for the first row of all.
    """
    batch, heads, rows, size = x.shape
    cos, sin = caches
    half = turned_size // 2
    expected = (cos.shape[0], half) if positions is not None else (batch, rows, half)
    fits = cos.shape == sin.shape == expected and cos.dtype == sin.dtype and cos.dtype.name in KINDS and turned_size <= size and turned_size % 2 == 0
    if not fits or (positions is not None and (positions.dtype != np.int64 or positions.count not in (1, batch * rows))):
        return None
    width = cos.dtype.itemsize
    alone = int(positions is not None and positions.count == 1 and batch * rows != 1)
    parts = step.parts(batch * rows, 3.0 * x.buffer.count)
    arguments = (
        *x.arguments, *y.arguments, batch, heads, rows, size, half, interleaved, cos, sin, KINDS[cos.dtype.name], rows * half * width, half * width,
        0 if positions is None else positions, alone, cos.shape[0], step.refusal, step.scratch(parts * 4 * (size + 2 * half + 3 * LANES)),
    )
    return [Launch(turned, arguments, parts)]


@native(rotary_embedding)
def plan_rotary(step: Step) -> Planned:
    """f64 is left to NumPy."""
    x, cos, sin = step.inputs[:3]
    positions = step.inputs[3] if len(step.inputs) > 3 else None
    attributes = step.attributes
    if x is None or cos is None or sin is None:
        return None
    heads = heads_of(x, attributes["num_heads"])
    if heads is None:
        return None
    y = heads_of(step.output(), attributes["num_heads"])
    size = attributes["rotary_embedding_dim"] or heads.shape[3]
    if y is None or (positions is not None and positions.count == 1 != heads.shape[0] * heads.shape[2]):
        return None
    return turn(step, heads, y, (cos, sin), positions, attributes["interleaved"], size)


@native(contrib_rotary)
def plan_contrib_rotary(step: Step) -> Planned:
    """f64 is left to NumPy."""
    x, positions, cos, sin = step.inputs[:4]
    if x is None or cos is None or sin is None or positions is None or len(cos.shape) != 2 or len(x.shape) < 3:
        return None
    size = 2 * cos.shape[1]
    heads = heads_of(x, step.attributes["num_heads"] or x.shape[-1] // size)
    if heads is None or (positions.count == 1 and len(positions.shape) > 1 and heads.shape[0] * heads.shape[2] != 1):
        return None
    y = heads_of(step.output(), heads.shape[1])
    return None if y is None else turn(step, heads, y, (cos, sin), positions, step.attributes["interleaved"], size)
