"""Native Attention and QAttention of onnxruntime: the projection, and attention of the heads where it lies."""

from __future__ import annotations

import numpy as np

from ....runtime.jit.address import f32, i32, share
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.range_kernel import range_kernel
from ....runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ...attention.attention_kernel import Heads, ScoreOptions, append_past, heads_of, launch_attention
from ...kernels.gemm.requantize import FLOATS
from ...linalg.panel_product import packed_launch, product_panels
from ...quantized.matmul_integer_kernel import Factors, product
from .attention import attention, quantized_attention

F32, I32 = np.dtype(np.float32), np.dtype(np.int32)


@range_kernel
def filled(
    mask: Address, flagged: int, made: Address, batch: int, keys: int, hidden: float, part: int, parts: int
) -> None:
    """0 for each key [batch, keys] that lengths [batch], or flags [batch, keys] where it is flagged, show; a number for
    the hidden ones."""
    mask, made, fill = i32(mask), f32(made), np.float32(hidden)
    first, last = share(batch, part, parts)
    for image in range(first, last):
        for key in range(keys):
            seen = mask[image * keys + key] > 0 if flagged != 0 else key < mask[image]
            made[image * keys + key] = np.float32(0) if seen else fill


def _hidden(step: Step, mask: Buffer, batch: int, keys: int, fill: float) -> tuple[Buffer, list[Launch]] | None:
    """A mask as numbers to add, [batch, 1, 1, keys]; None for forms that are left to NumPy."""
    if (
        mask.dtype != I32
        or mask.shape not in ((batch,), (batch, keys))
        or (len(mask.shape) == 2 and mask.count == batch)
    ):
        return None
    made = step.scratch(4 * batch * keys).view((batch, 1, 1, keys), dtype=F32)
    return made, [
        Launch(filled, mask=mask, flagged=int(len(mask.shape) == 2), made=made, batch=batch, keys=keys, hidden=fill)
    ]


def _sliced(x: Buffer, shape: tuple[int, int, int, int], start: int, row: int, head: int) -> Heads:
    """Heads inside of a tensor [batch, rows, ...] whose rows have `row` elements."""
    return Heads(x.view(x.shape, start), (shape[2] * row, head, row), shape)


def _launched(
    step: Step, parts: list[Heads], mask_index: Buffer | None, mask: Buffer | None, launches: list[Launch]
) -> list[Launch] | None:
    """`launches` and then attention of queries, keys and values under a mask; None for what NumPy computes."""
    q, keys, values = parts
    attributes = step.attributes
    if mask_index is not None:
        hidden = _hidden(step, mask_index, q.shape[0], keys.shape[2], attributes["mask_filter_value"])
        if hidden is None or mask is not None:
            return None
        mask = hidden[0]
        launches += hidden[1]
    y = heads_of(step.output(0), attributes["num_heads"])
    factor = attributes["scale"] or max(1, q.shape[3]) ** -0.5
    scores = ScoreOptions(
        factor, causal=bool(attributes["unidirectional"]), mask=mask, before=keys.shape[2] - q.shape[2]
    )
    found = None if y is None else launch_attention(step, q, keys, values, y, scores)
    return None if found is None else [*launches, *found]


@native(attention)
def plan_attention(step: Step) -> Planned:
    """Plan constant weights without rotary embedding and pasts in buffers, and masks [batch] or [batch, keys]; NumPy
    computes the rest."""
    given: list[Buffer | None] = [*step.inputs, *[None] * (7 - len(step.inputs))]
    x, (mask, past, bias, filled_past) = given[0], given[3:7]
    weights, projection = step.inputs[1], step.constant(2)
    if (
        x is None
        or weights is None
        or not step.is_constant(1)
        or x.dtype != F32
        or len(x.shape) != 3
        or weights.shape[:1] != x.shape[2:]
    ):
        return None
    if filled_past is not None or (step.inputs[2] is not None and projection is None):
        return None
    sizes = list(step.attributes["qkv_hidden_sizes"] or [weights.shape[1] // 3] * 3)
    wide, rows = weights.shape[1], x.shape[0] * x.shape[1]
    made = step.scratch(4 * rows * wide).view((*x.shape[:2], wide), dtype=F32)
    launch = packed_launch(
        step, x, step.packed(1, "panels", product_panels), made, projection, (rows, wide, x.shape[2]), (x.shape[2], 1)
    )
    attended = _attended(step, made, sizes, mask, past, bias)
    return None if attended is None else [launch, *attended]


@native(quantized_attention)
def plan_quantized_attention(step: Step) -> Planned:
    """Plan 8-bit inputs and weights with one scale, or one per column of the weights, and f32 results."""
    given: list[Buffer | None] = [*step.inputs, *[None] * (9 - len(step.inputs))]
    x, scale, mask, zero, past = given[0], given[3], given[5], given[6], given[8]
    weights, projection = step.inputs[1], step.constant(2)
    if x is None or weights is None or not step.is_constant(1) or len(x.shape) != 3:
        return None
    if projection is None or projection.dtype != F32 or scale is None or scale.dtype != F32:
        return None
    wide, rows = weights.shape[1], x.shape[0] * x.shape[1]
    made = step.scratch(4 * rows * wide).view((*x.shape[:2], wide), dtype=F32)
    launches = product(step, made, Factors(x, zero, 1, 7, FLOATS, scale, 4, float_bias=projection))
    attended = _attended(step, made, [wide // 3] * 3, mask, past, None)
    return None if launches is None or attended is None else [*launches, *attended]


def _attended(
    step: Step, made: Buffer, sizes: list[int], mask_index: Buffer | None, past: Buffer | None, mask: Buffer | None
) -> list[Launch] | None:
    """Attention of queries, keys and values next to each other in [batch, rows, sum of sizes]."""
    attributes, (batch, rows, wide) = step.attributes, made.shape
    heads, alike = attributes["num_heads"], sizes[0] == sizes[1] == sizes[2]
    if attributes["do_rotary"] or attributes["past_present_share_buffer"] or not step.is_used(0):
        return None
    if (
        sum(sizes) != wide
        or any(item % heads for item in sizes)
        or ((past is not None or step.is_used(1)) and not alike)
    ):
        return None
    parts = [
        _sliced(made, (batch, heads, rows, item // heads), start, wide, item // heads)
        for item, start in zip(sizes, (0, sizes[0], 2 * sizes[0]), strict=True)
    ]
    kept = _halves(step, parts[1:], past)
    if kept is None:
        return None
    (keys, values), launches = kept
    return _launched(step, [parts[0], keys, values], mask_index, mask, launches)


def _halves(step: Step, parts: list[Heads], past: Buffer | None) -> tuple[list[Heads], list[Launch]] | None:
    """Keys and values with the past before them, packed in [2, batch, heads, rows, size]."""
    if past is None and not step.is_used(1):
        return parts, []
    batch, heads, rows, size = parts[0].shape
    before = 0 if past is None else past.shape[3]
    if past is not None and (past.dtype != F32 or past.shape != (2, batch, heads, before, size)):
        return None
    shape = (batch, heads, before + rows, size)
    count = int(np.prod(shape))
    if step.is_used(1) and step.results[1] != (F32, (2, *shape)):
        return None
    whole = step.output(1) if step.is_used(1) else step.scratch(8 * count).view((2, *shape), dtype=F32)
    found, launches = [], []
    for index, part in enumerate(parts):
        place = whole.view(shape, index * count)
        old = (
            part.buffer.view((batch, heads, 0, size))
            if past is None
            else past.view((batch, heads, before, size), index * past.count // 2)
        )
        launches += append_past(step, old, part, place)
        made = heads_of(place, None)
        assert made is not None
        found.append(made)
    return found, launches
