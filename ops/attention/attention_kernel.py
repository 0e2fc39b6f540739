"""Native Attention: few queries go over the cache as it lies, many in blocks over packed keys and values."""

from __future__ import annotations

import numpy as np

from ...runtime.launch import Buffer, Launch, Planned, Step, native
from ...runtime.record import dataclass
from ..math.lane_kernel import KINDS
from ..math.tile_kernel import PANEL, ROWS
from ..shape.layout_kernel import copy
from . import blocked_kernel, decode_kernel, group_kernel
from .attention import attention, softmax_dtype
from .score_kernel import ADDED, HIDING, NO_MASK

FEW = 4
"""Queries up to which a cache is read as it lies."""
F32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Heads:
    """[batch, heads, rows, size] in a buffer, with elements from batch to batch, head to head and row to row."""

    buffer: Buffer
    steps: tuple[int, int, int]
    shape: tuple[int, int, int, int]

    @property
    def kind(self) -> int:
        """How numbers are stored, as kernels name it."""
        return KINDS[self.buffer.dtype.name]

    @property
    def arguments(self) -> tuple[Buffer | int, ...]:
        """Buffer, kind and steps in bytes."""
        return (self.buffer, self.kind, *(step * self.buffer.dtype.itemsize for step in self.steps))


def heads_of(buffer: Buffer, count: int | None) -> Heads | None:
    """Heads of [batch, heads, rows, size] or [batch, rows, heads x size]; None for others."""
    if buffer.dtype.name not in KINDS:
        return None
    if len(buffer.shape) == 4:
        batch, heads, rows, size = buffer.shape
        return Heads(buffer, (heads * rows * size, rows * size, size), (batch, heads, rows, size))
    if len(buffer.shape) != 3 or not count or buffer.shape[2] % count:
        return None
    batch, rows, whole = buffer.shape
    return Heads(buffer, (rows * whole, whole // count, whole), (batch, count, rows, whole // count))


@dataclass(frozen=True)
class Scores:
    """What happens to products of queries and keys, see `scaled_dot.Scoring` and `Sight`.

    Attributes:
        mask: truth values or numbers that broadcast to [batch, heads, queries, keys], the last axis as it is.
        lengths, more: keys of each sequence are these integers, and `more`; all where None.
        before: position of the first query; where there are lengths, queries are the last positions.
        sink: a score for each head.
    """

    scale: float
    softcap: float = 0.0
    causal: bool = False
    left: int = -1
    right: int = -1
    mask: Buffer | None = None
    lengths: Buffer | None = None
    more: int = 0
    before: int = 0
    sink: Buffer | None = None


def attend(step: Step, q: Heads, k: Heads, v: Heads, y: Heads, scores: Scores) -> list[Launch] | None:
    """Launches that compute `y`; None where lengths or dtypes do not fit."""
    batch, heads, queries, size = q.shape
    groups, keys, width = k.shape[1], k.shape[2], v.shape[3]
    fits = k.shape[0] == v.shape[0] == batch and v.shape[1:3] == (groups, keys) and k.shape[3] == size and y.shape == (batch, heads, queries, width)
    masked = _mask(scores.mask, (batch, heads, queries))
    if not fits or heads % groups or masked is None or min(batch, heads, queries, keys, size, width) < 1:
        return None
    counted = (0, 0) if scores.lengths is None else (scores.lengths, scores.lengths.dtype.itemsize)
    sink = (0, 0) if scores.sink is None else (scores.sink, KINDS[scores.sink.dtype.name])
    arguments = (
        *q.arguments, *y.arguments, batch, heads, groups, queries, keys, size, width, *masked, *counted, scores.more, scores.before,
        int(scores.causal), scores.left, scores.right, *sink, float(scores.scale), float(scores.softcap),
    )
    work = batch * heads * queries * keys * (size + width) / 8
    if queries <= FEW:
        return _over_cache(step, k, v, arguments, work)
    return _in_blocks(step, k, v, arguments, work)


def _mask(mask: Buffer | None, lengths: tuple[int, int, int]) -> tuple[Buffer | int, ...] | None:
    """Address, form, steps in bytes and keys of a mask."""
    if mask is None:
        return (0, NO_MASK, 0, 0, 0, 0)
    if mask.dtype not in (F32, np.bool_) or not 1 <= len(mask.shape) <= 4:
        return None
    shape = (1,) * (4 - len(mask.shape)) + mask.shape
    if any(length not in (1, whole) for length, whole in zip(shape, lengths, strict=False)):
        return None
    steps = mask.view(shape).strides
    spread = (0 if length == 1 else step * mask.dtype.itemsize for length, step in zip(shape[:3], steps, strict=False))
    return (mask, HIDING if mask.dtype == np.bool_ else ADDED, *spread, shape[3])


def _over_cache(step: Step, k: Heads, v: Heads, arguments: tuple[Buffer | int | float, ...], work: float) -> list[Launch]:
    batch, heads, groups, queries, keys, size, width = (int(item) for item in arguments[10:17])  # type: ignore[arg-type]
    rows, units = heads // groups * queries, batch * groups * -(-keys // group_kernel.KEYS)
    parts = step.parts(units, work)
    partial = step.scratch(units * 4 * rows * (width + 2))
    room = step.scratch(parts * 4 * rows * (size + group_kernel.KEYS))
    whole = (*arguments, *k.arguments, *v.arguments, partial, room)
    return [
        Launch(decode_kernel.attended_cache, whole, parts),
        Launch(decode_kernel.gathered_cache, whole, step.parts(batch * groups * rows, units * rows * width / 4)),
    ]


def _in_blocks(step: Step, k: Heads, v: Heads, arguments: tuple[Buffer | int | float, ...], work: float) -> list[Launch]:
    batch, heads, groups, queries, keys, size, width = (int(item) for item in arguments[10:17])  # type: ignore[arg-type]
    panels, blocks, columns = -(-keys // PANEL), -(-keys // blocked_kernel.KEYS), -(-width // PANEL)
    packed_k = step.scratch(4 * batch * groups * panels * size * PANEL)
    packed_v = step.scratch(4 * batch * groups * blocks * columns * blocked_kernel.KEYS * PANEL)
    zero = step.held(np.zeros(PANEL, np.float32))
    units = batch * heads * -(-queries // blocked_kernel.QUERIES)
    parts = step.parts(units, work)
    room = step.scratch(parts * 4 * (blocked_kernel.QUERIES * (size + blocked_kernel.KEYS + 2 * columns * PANEL + 4) + ROWS * PANEL))
    lengths = (batch, groups, keys)
    return [
        Launch(blocked_kernel.packed_keys, (*k.arguments, packed_k, *lengths, size), step.parts(batch * groups * panels, k.buffer.count)),
        Launch(blocked_kernel.packed_values, (*v.arguments, packed_v, *lengths, width), step.parts(batch * groups * blocks, v.buffer.count)),
        Launch(blocked_kernel.attended_blocks, (*arguments, packed_k, packed_v, zero, room), parts),
    ]


def appended(step: Step, past: Buffer, new: Heads, whole: Buffer) -> list[Launch]:
    """Copies that put [batch, heads, past] and then `new` into [batch, heads, past + new, size]."""
    batch, heads, rows, size = new.shape
    count, longest = past.shape[2], whole.shape[2]
    steps = (heads * longest * size, longest * size, size, 1)
    launches = []
    if count:
        launches.append(copy(step, past, whole, (batch, heads, count, size), past.strides, steps))
    behind = whole.view((batch, heads, rows, size), count * size)
    launches.append(copy(step, new.buffer, behind, (batch, heads, rows, size), (*new.steps, 1), steps))
    return launches


def present(step: Step, index: int, new: Heads, past: Buffer | None) -> tuple[Heads, list[Launch]] | None:
    """Keys or values with the past before them, as output `index` where it is wanted; None where they do not fit."""
    batch, heads, rows, size = new.shape
    if past is not None and (len(past.shape) != 4 or past.dtype != new.buffer.dtype or (*past.shape[:2], past.shape[3]) != (batch, heads, size)):
        return None
    shape = (batch, heads, rows + (past.shape[2] if past is not None else 0), size)
    if step.wanted(index):
        whole = step.output(index)
    elif past is None:
        return new, []
    else:
        whole = step.scratch(int(np.prod(shape)) * new.buffer.dtype.itemsize).view(shape, dtype=new.buffer.dtype)
    if whole.shape != shape:
        return None
    made = heads_of(whole, None)
    assert made is not None
    if past is None:
        past = new.buffer.view((batch, heads, 0, size))
    return made, appended(step, past, new, whole)


@native(attention)
def plan_attention(step: Step) -> Planned:
    """Scores as an output, f64 and other precisions of the softmax are left to NumPy."""
    given = [*step.inputs, *[None] * (7 - len(step.inputs))]
    q, k, v, mask, past_k, past_v, counted = given
    attributes = step.attributes
    precision = softmax_dtype(attributes["softmax_precision"], "Attention")
    if q is None or k is None or v is None or step.wanted(3) or (precision is not None and precision != F32):
        return None
    if (past_k is None) != (past_v is None) or (past_k is not None and counted is not None):
        return None
    queries = heads_of(q, attributes["q_num_heads"])
    news = heads_of(k, attributes["kv_num_heads"]), heads_of(v, attributes["kv_num_heads"])
    if queries is None or news[0] is None or news[1] is None or not step.wanted(0):
        return None
    if counted is not None and (counted.count != queries.shape[0] or counted.dtype.name not in ("int64", "int32")):
        return None
    keys, values = present(step, 1, news[0], past_k), present(step, 2, news[1], past_v)
    y = heads_of(step.output(0), attributes["q_num_heads"])
    if keys is None or values is None or y is None:
        return None
    scale = attributes["scale"]
    scores = Scores(
        scale if scale is not None else queries.shape[3] ** -0.5, attributes["softcap"], bool(attributes["is_causal"]),
        attributes["left_window_size"], attributes["right_window_size"], mask, counted, 0, past_k.shape[2] if past_k is not None else 0,
    )
    launches = attend(step, queries, keys[0], values[0], y, scores)
    return None if launches is None else [*keys[1], *values[1], *launches]
