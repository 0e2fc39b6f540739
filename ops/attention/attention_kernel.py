"""Native Attention: flash decoding for few queries, blocks of packed keys and values for many."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ...runtime.simd.memory import DTYPE_CODES
from ..kernels.attention import flash_decode, flash_prefill, grouped_heads
from ..kernels.attention.q8_0_rows import BLOCK_LENGTH, BLOCK_NBYTES, CHUNK, Q8_0_CODE
from ..kernels.attention.score_row import ADDITIVE_MASK, BOOL_MASK, NO_MASK, AttentionArguments, HeadRows
from ..kernels.gemm.microkernel_f32 import ROWS
from ..kernels.gemm.register_tile import PANEL
from ..kernels.strided_copy import copy
from .attention import attention, softmax_dtype

MAX_DECODE_QUERIES = 4
"""Maximum number of queries for flash decoding."""
F32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Heads:
    """[batch, heads, rows, size] in a buffer, with strides in elements of batch, head and row."""

    buffer: Buffer
    steps: tuple[int, int, int]
    shape: tuple[int, int, int, int]

    @property
    def kind(self) -> int:
        """The dtype as the kernels' constant."""
        return DTYPE_CODES[self.buffer.dtype.name]

    @property
    def arguments(self) -> HeadRows:
        """The kernel arguments."""
        return HeadRows(self.buffer, self.kind, *(step * self.buffer.dtype.itemsize for step in self.steps))


@dataclass(frozen=True)
class BlockHeads(Heads):
    """Heads whose rows are stored as Q8_0 blocks, strides in bytes."""

    @property
    def kind(self) -> int:
        """The blocks' code."""
        return Q8_0_CODE


def heads_of_blocks(buffer: Buffer) -> BlockHeads | None:
    """Heads of u8 [batch, heads, rows, bytes]; None for others."""
    if buffer.dtype != np.uint8 or len(buffer.shape) != 4 or buffer.shape[3] % BLOCK_NBYTES:
        return None
    batch, heads, rows, nbytes = buffer.shape
    shape = (batch, heads, rows, nbytes // BLOCK_NBYTES * BLOCK_LENGTH)
    return BlockHeads(buffer, (heads * rows * nbytes, rows * nbytes, nbytes), shape)


def heads_of(buffer: Buffer, count: int | None) -> Heads | None:
    """Heads of [batch, heads, rows, size] or [batch, rows, heads x size]; None for others."""
    if buffer.dtype.name not in DTYPE_CODES:
        return None
    if len(buffer.shape) == 4:
        batch, heads, rows, size = buffer.shape
        return Heads(buffer, (heads * rows * size, rows * size, size), (batch, heads, rows, size))
    if len(buffer.shape) != 3 or not count or buffer.shape[2] % count:
        return None
    batch, rows, whole = buffer.shape
    return Heads(buffer, (rows * whole, whole // count, whole), (batch, count, rows, whole // count))


@dataclass(frozen=True)
class ScoreOptions:
    """Scale, mask and limits of attention scores.

    Attributes:
        mask: bool or f32, broadcast to [batch, heads, queries, keys] except the last axis.
        lengths, more: sequence i has ``lengths[i] + more`` keys; all keys if None.
        before: position of the first query; with lengths, queries are the last positions.
        sink: a sink score per head.
        grid: where keys lie; queries then have the biases of rows and columns after their elements.
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
    grid: flash_prefill.Grid = flash_prefill.Grid()


def launch_attention(step: Step, q: Heads, k: Heads, v: Heads, y: Heads, scores: ScoreOptions) -> list[Launch] | None:
    """Launches that compute `y`; None if shapes or dtypes are not supported."""
    batch, heads, queries, size = q.shape
    groups, keys, width = k.shape[1], k.shape[2], v.shape[3]
    fits = (
        k.shape[0] == v.shape[0] == batch
        and v.shape[1:3] == (groups, keys)
        and k.shape[3] == size - sum(scores.grid)
        and (not scores.grid.columns or keys == scores.grid.rows * scores.grid.columns)
        and y.shape == (batch, heads, queries, width)
    )
    masked = _mask(scores.mask, (batch, heads, queries))
    if not fits or heads % groups or masked is None or min(batch, heads, queries, keys, size, width) < 1:
        return None
    counted = (0, 0) if scores.lengths is None else (scores.lengths, scores.lengths.dtype.itemsize)
    sink = (0, 0) if scores.sink is None else (scores.sink, DTYPE_CODES[scores.sink.dtype.name])
    problem = AttentionArguments(
        batch,
        heads,
        groups,
        queries,
        keys,
        size,
        width,
        *masked,
        lengths=counted[0],
        length_width=counted[1],
        more=scores.more,
        before=scores.before,
        causal=int(scores.causal),
        left=scores.left,
        right=scores.right,
        sink=sink[0],
        sink_kind=sink[1],
        scale=float(scores.scale),
        softcap=float(scores.softcap),
    )
    work = batch * heads * queries * keys * (size + width)
    if queries <= MAX_DECODE_QUERIES:
        return _flash_decode(step, (q, k, v, y), problem, work)
    return _flash_prefill(step, (q, k, v, y), problem, scores.grid, work / 8)


def _mask(mask: Buffer | None, lengths: tuple[int, int, int]) -> tuple[Any, int, int, int, int, int] | None:
    """Address, kind, strides in bytes and keys of a mask."""
    if mask is None:
        return (0, NO_MASK, 0, 0, 0, 0)
    if mask.dtype not in (F32, np.bool_) or not 1 <= len(mask.shape) <= 4:
        return None
    shape = (1,) * (4 - len(mask.shape)) + mask.shape
    if any(length not in (1, whole) for length, whole in zip(shape, lengths, strict=False)):
        return None
    steps = mask.view(shape).strides
    batch, head, row = (
        0 if length == 1 else step * mask.dtype.itemsize for length, step in zip(shape[:3], steps, strict=False)
    )
    return (mask, BOOL_MASK if mask.dtype == np.bool_ else ADDITIVE_MASK, batch, head, row, shape[3])


def _flash_decode(
    step: Step, tensors: tuple[Heads, Heads, Heads, Heads], problem: AttentionArguments, work: float
) -> list[Launch]:
    batch, heads, groups, queries, keys, size, width = problem[:7]
    q, k, v, y = (heads.arguments for heads in tensors)
    rows, units = heads // groups * queries, batch * groups * -(-keys // grouped_heads.KEYS)
    parts = step.parts(units, work)
    partial = step.scratch(units * 4 * rows * (width + 2))
    spare = CHUNK * max(size, width) if Q8_0_CODE in (k.kind, v.kind) else 0
    scratch = step.scratch(parts * 4 * (rows * (size + grouped_heads.KEYS) + spare))
    gathering = step.parts(batch * groups * rows, units * rows * width / 4)
    return [
        Launch(
            flash_decode.decode_kernel(k.kind, v.kind),
            parts,
            query_rows=q,
            key_rows=k,
            value_rows=v,
            problem=problem,
            partial=partial,
            scratch=scratch,
            spare=spare,
        ),
        Launch(flash_decode.combine_blocks, gathering, output_rows=y, problem=problem, partial=partial),
    ]


def _flash_prefill(
    step: Step,
    tensors: tuple[Heads, Heads, Heads, Heads],
    problem: AttentionArguments,
    grid: flash_prefill.Grid,
    work: float,
) -> list[Launch]:
    batch, heads, groups, queries, keys, size, width = problem[:7]
    q, k, v, y = tensors
    key_size = k.shape[3]
    panels, blocks, columns = -(-keys // PANEL), -(-keys // flash_prefill.KEYS), -(-width // PANEL)
    packed_k = step.scratch(4 * batch * groups * panels * key_size * PANEL)
    packed_v = step.scratch(4 * batch * groups * blocks * columns * flash_prefill.KEYS * PANEL)
    zero = step.constant_buffer(np.zeros(PANEL, np.float32))
    units = batch * heads * -(-queries // flash_prefill.QUERIES)
    parts = step.parts(units, work)
    scratch = step.scratch(
        parts * 4 * (flash_prefill.QUERIES * (size + flash_prefill.KEYS + 2 * columns * PANEL + 4) + ROWS * PANEL)
    )
    packing: dict[str, Any] = {"problem": problem, "batch": batch, "heads": groups, "keys": keys}
    packing_k, packing_v = (
        step.parts(batch * groups * panels, k.buffer.count),
        step.parts(batch * groups * blocks, v.buffer.count),
    )
    return [
        Launch(flash_prefill.pack_keys, packing_k, rows=k.arguments, target=packed_k, **packing, size=key_size),
        Launch(flash_prefill.pack_values, packing_v, rows=v.arguments, target=packed_v, **packing, size=width),
        Launch(
            flash_prefill.prefill_blocks,
            parts,
            query_rows=q.arguments,
            output_rows=y.arguments,
            problem=problem,
            grid=grid,
            packed_k=packed_k,
            packed_v=packed_v,
            zero=zero,
            scratch=scratch,
        ),
    ]


def append_past(step: Step, past: Buffer, new: Heads, whole: Buffer) -> list[Launch]:
    """Launches that copy `past` and then `new` into `whole` [batch, heads, past + new, size]."""
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
    """Past and new keys or values joined, in output `index` if it is used; None if shapes do not match."""
    batch, heads, rows, size = new.shape
    if past is not None and (
        len(past.shape) != 4
        or past.dtype != new.buffer.dtype
        or (*past.shape[:2], past.shape[3]) != (batch, heads, size)
    ):
        return None
    shape = (batch, heads, rows + (past.shape[2] if past is not None else 0), size)
    if step.is_used(index):
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
    return made, append_past(step, past, new, whole)


@native(attention)
def plan_attention(step: Step) -> Planned:
    """f32 softmax without the scores output; NumPy computes the rest."""
    given = [*step.inputs, *[None] * (7 - len(step.inputs))]
    q, k, v, mask, past_k, past_v, counted = given
    attributes = step.attributes
    precision = softmax_dtype(attributes["softmax_precision"], "Attention")
    if q is None or k is None or v is None or step.is_used(3) or (precision is not None and precision != F32):
        return None
    if (past_k is None) != (past_v is None) or (past_k is not None and counted is not None):
        return None
    queries = heads_of(q, attributes["q_num_heads"])
    news = heads_of(k, attributes["kv_num_heads"]), heads_of(v, attributes["kv_num_heads"])
    if queries is None or news[0] is None or news[1] is None or not step.is_used(0):
        return None
    if counted is not None and (counted.count != queries.shape[0] or counted.dtype.name not in ("int64", "int32")):
        return None
    keys, values = present(step, 1, news[0], past_k), present(step, 2, news[1], past_v)
    y = heads_of(step.output(0), attributes["q_num_heads"])
    if keys is None or values is None or y is None:
        return None
    scale = attributes["scale"]
    scores = ScoreOptions(
        scale if scale is not None else queries.shape[3] ** -0.5,
        attributes["softcap"],
        bool(attributes["is_causal"]),
        attributes["left_window_size"],
        attributes["right_window_size"],
        mask,
        counted,
        0,
        past_k.shape[2] if past_k is not None else 0,
    )
    launches = launch_attention(step, queries, keys[0], values[0], y, scores)
    return None if launches is None else [*keys[1], *values[1], *launches]
