"""Native RotaryEmbedding of f32, f16 and bf16."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.jit.address import f32, i64, share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import inner, range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ...runtime.simd.memory import DTYPE_CODES, fma, load_f32, narrow, store_f32, widen
from ...runtime.simd.vector import LANES
from ..kernels.attention.score_row import HeadRows
from .attention_kernel import Heads, heads_of
from .rotary_embedding import rotary_embedding


@inner
def _rotate_halves(x: Any, cos: Any, sin: Any, half: Any) -> None:
    """Rotate the pairs (i, i + half) of an f32 row in place."""
    whole = half - half % LANES
    for j in range(0, whole, LANES):
        one, two = load_f32(x + 4 * j), load_f32(x + 4 * (half + j))
        c, s = load_f32(cos + 4 * j), load_f32(sin + 4 * j)
        store_f32(x + 4 * j, fma(c, one, -(s * two)))
        store_f32(x + 4 * (half + j), fma(s, one, c * two))
    row, cosines, sines = f32(x), f32(cos), f32(sin)
    for j in range(whole, half):
        a, b = row[j], row[half + j]
        row[j], row[half + j] = cosines[j] * a - sines[j] * b, sines[j] * a + cosines[j] * b


@inner
def _rotate_pairs(x: Any, cos: Any, sin: Any, half: Any) -> None:
    """Rotate the pairs (2 i, 2 i + 1) of an f32 row in place."""
    row, cosines, sines = f32(x), f32(cos), f32(sin)
    for j in range(half):
        a, b = row[2 * j], row[2 * j + 1]
        row[2 * j], row[2 * j + 1] = cosines[j] * a - sines[j] * b, sines[j] * a + cosines[j] * b


@range_kernel(unroll=False)
def rotate_heads(
    source: HeadRows,
    target: HeadRows,
    batch: int,
    heads: int,
    rows: int,
    size: int,
    half: int,
    interleaved: int,
    cos: Address,
    sin: Address,
    kind: int,
    cache_batch: int,
    cache_row: int,
    positions: Address,
    single_position: int,
    longest: int,
    bailout: Address,
    workspace: Address,
    part: int,
    parts: int,
) -> None:
    """Rotate all heads. `single_position`: `positions` holds only that of the first row. Caches have `longest` rows;
    their strides are bytes."""
    x, x_kind, x_batch, x_head, x_row = source.at, source.kind, source.batch, source.head, source.row
    y, y_kind, y_batch, y_head, y_row = target.at, target.kind, target.batch, target.head, target.row
    scratch = workspace + part * 4 * (size + 2 * half + 3 * LANES)
    cosines = scratch + 4 * (size + LANES)
    sines = cosines + 4 * (half + LANES)
    one = np.float32(1)
    first, last = share(batch * rows, part, parts)
    for unit in range(first, last):
        image, row = unit // rows, unit % rows
        place = image * cache_batch + row * cache_row
        if positions != 0:
            position = i64(positions)[0] + row if single_position != 0 else i64(positions)[unit]
            if position < 0 or position >= longest:
                i64(bailout)[0] = 1
                position = 0
            place = position * cache_row
        widen(kind, cos + place, cosines, half, one)
        widen(kind, sin + place, sines, half, one)
        for head in range(heads):
            widen(x_kind, x + image * x_batch + head * x_head + row * x_row, scratch, size, one)
            if interleaved != 0:
                _rotate_pairs(scratch, cosines, sines, half)
            else:
                _rotate_halves(scratch, cosines, sines, half)
            narrow(y_kind, scratch, y + image * y_batch + head * y_head + row * y_row, size, one)


def launch_rotary(
    step: Step,
    x: Heads,
    y: Heads,
    caches: tuple[Buffer, Buffer],
    positions: Buffer | None,
    interleaved: int,
    rotary_size: int,
) -> list[Launch] | None:
    """Launches that rotate the first `rotary_size` elements of every head; None if shapes or dtypes are not supported.

    Args:
        caches: cosines and sines, [positions, half], or [batch, rows, half] without positions.
        positions: [batch, rows], or one position of the first row.
    """
    batch, heads, rows, size = x.shape
    cos, sin = caches
    half = rotary_size // 2
    expected = (cos.shape[0], half) if positions is not None else (batch, rows, half)
    fits = (
        cos.shape == sin.shape == expected
        and cos.dtype == sin.dtype
        and cos.dtype.name in DTYPE_CODES
        and rotary_size <= size
        and rotary_size % 2 == 0
    )
    if not fits or (
        positions is not None and (positions.dtype != np.int64 or positions.count not in (1, batch * rows))
    ):
        return None
    width = cos.dtype.itemsize
    single_position = int(positions is not None and positions.count == 1 and batch * rows != 1)
    parts = step.parts(batch * rows, 3.0 * x.buffer.count)
    return [
        Launch(
            rotate_heads,
            parts,
            source=x.arguments,
            target=y.arguments,
            batch=batch,
            heads=heads,
            rows=rows,
            size=size,
            half=half,
            interleaved=interleaved,
            cos=cos,
            sin=sin,
            kind=DTYPE_CODES[cos.dtype.name],
            cache_batch=rows * half * width,
            cache_row=half * width,
            positions=0 if positions is None else positions,
            single_position=single_position,
            longest=cos.shape[0],
            bailout=step.bailout,
            workspace=step.scratch(parts * 4 * (size + 2 * half + 3 * LANES)),
        )
    ]


@native(rotary_embedding)
def plan_rotary(step: Step) -> Planned:
    """Plan every dtype but f64, which NumPy computes."""
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
    return launch_rotary(step, heads, y, (cos, sin), positions, attributes["interleaved"], size)
