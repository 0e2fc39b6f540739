"""MultiHeadAttention on the device: every input layout, appended or preallocated KV caches, additive masks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.cuda.kernel.elementwise import chain_step, elementwise_chain, elementwise_launch
from ....runtime.cuda.kernel.kernel import Launch
from ....runtime.cuda.kernel.operand import Lookup, Operand, over
from ....runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ....runtime.plan.kernel_api import Buffer, Chain
from ...attention.attention_cuda import KeyVisibility, Scoring, attended, in_heads, joined
from ...attention.flash_cuda import Heads
from ...norm.layer_norm import wide
from .append_kv_cache_cuda import behind, cached
from .multi_head_attention import multi_head_attention

INT64 = np.dtype(np.int64)


def _plus(x: float, other: float) -> float:
    return x + other


def _parts(query: Buffer, key: Buffer | None, value: Buffer | None, heads: int) -> list[Heads] | None:
    """Queries, keys and values, None where they are not in a form that the operator knows."""
    if len(query.shape) == 5:
        return _packed(query)
    if key is None:
        return None
    if len(key.shape) == 5:
        return [in_heads(query, heads), *_packed(key)]
    return None if value is None else [in_heads(query, heads), *(in_heads(item, heads) for item in (key, value))]


def _packed(whole: Buffer) -> list[Heads]:
    """The parts of [batch, length, heads, parts, size]."""
    n, length, heads, parts, size = whole.shape
    strides = (length * heads * parts * size, parts * size, heads * parts * size, 1)
    return [
        Heads(whole.view((whole.count - part * size,), part * size), (n, heads, length, size), strides)
        for part in range(parts)
    ]


def _shifted_parts(step: Step, parts: list[Heads], fresh: bool, launches: list[Launch | Chain]) -> list[Heads]:
    """Queries, and keys and values that are `fresh`, with their biases."""
    bias, start = step.optional_input(3), 0
    if bias is None:
        return parts
    made = []
    for part in parts[: 3 if fresh else 1]:
        heads, size = part.shape[1], part.shape[3]
        target = in_heads(step.temporary(part.buffer.dtype, part.shape), None)
        apply = chain_step(_plus, [part.buffer, bias], part.buffer.dtype)
        launches.append(
            elementwise_launch(
                [apply], part.shape, [part.operand, Operand(bias, (0, size, 0, 1), start)], target.operand
            )
        )
        made.append(target)
        start += heads * size
    return [*made, *parts[len(made) :]]


def _before(place: int, end: int, fill: float) -> float:
    return 0 if place < end else fill


def _between(place: int, end: int, start: int, fill: float) -> float:
    return 0 if place < end and place >= start else fill


def _visible(mask: int, fill: float) -> float:
    return 0 if mask > 0 else fill


def masked(
    step: Step, mask: Buffer, batch: int, queries: int, keys: int, bias: Buffer | None, launches: list[Launch | Chain]
) -> Buffer | None:
    """The bias of a mask, as `heads.hidden_by` computes it, with `bias` added; None if the mask does not fit."""
    shape, rows, fill = mask.shape, 1, step.attributes["mask_filter_value"]
    places = step.constant_buffer(np.arange(keys))
    along = Operand(places, (0, 0, 0, 1))
    function: Any = _visible
    if len(shape) == 1 and shape[0] in (batch, 2 * batch, 3 * batch + 2):
        operands = [
            along,
            Operand(mask, (1, 0, 0, 0)),
            *([Operand(mask, (1, 0, 0, 0), batch)] if shape[0] == 2 * batch else []),
        ]
        function = _between if shape[0] == 2 * batch else _before
    elif len(shape) == 2 and shape[0] == batch and shape[1] <= keys:
        operands = [
            Operand(mask, (shape[1], 0, 0, 0), lookups=(Lookup(places, (0, 0, 0, 1), 1, shape[1], wraps=False),))
        ]
    elif shape == (batch, queries, keys):
        operands, rows = [Operand(mask, (queries * keys, 0, keys, 1))], queries
    elif len(shape) == 4 and shape[:2] == (batch, 1) and min(shape[2:]) >= keys:
        operands, rows = [Operand(mask, (shape[2] * shape[3], 0, shape[3], 1), (keys - queries) * shape[3])], queries
    else:
        return None
    made = step.temporary(np.float32, (batch, 1, rows, keys))
    apply = chain_step(function, [item.buffer for item in operands], made.dtype, fill, compute=made.dtype)
    launches.append(elementwise_launch([apply], made.shape, operands, over(made, made.shape)))
    if bias is None:
        return made
    total = step.temporary(np.float32, np.broadcast_shapes(made.shape, bias.shape))
    launches.append(elementwise_chain(_plus, [made, bias], total, compute=made.dtype))
    return total


def _in_buffers(
    step: Step, pasts: list[Buffer | None], new: list[Heads], filled: Buffer, launches: list[Launch | Chain]
) -> KeyVisibility | None:
    """Write new keys and values, which the buffers then stand for, where `filled` says; None where they do not fit."""
    n, _, length, _ = new[0].shape
    if any(
        past is None or past.shape != (*part.shape[:2], past.shape[2], part.shape[3])
        for past, part in zip(pasts, new, strict=True)
    ):
        return None
    starts, counts = step.temporary(INT64, (n,)), step.temporary(INT64, (n,))
    for made, more in ((starts, 0), (counts, length)):
        launches.append(
            elementwise_chain(_plus, [filled.view((1,)), step.constant_buffer(np.array(more))], made, compute=INT64)
        )
    places = behind(step, starts, length, launches)
    new[:] = [
        cached(step, past, part, places, 1 + at, 0, launches)
        for at, (past, part) in enumerate(zip(pasts, new, strict=True))
    ]
    return KeyVisibility(starts, length=counts)


def _covered(room: int, mask: Buffer, bias: Buffer | None) -> int:
    """Keys of a shared buffer that a mask is about, which the shapes say where they hold a number for each key."""
    if bias is not None and bias.shape[-1] != 1:
        return bias.shape[-1]
    return mask.shape[2] if len(mask.shape) == 3 else room


@cuda(multi_head_attention)
def multi_head_on_device(step: Step) -> Planned:
    """Plan queries, keys and values as three tensors, packed in one or two, or with keys and values per head."""
    heads, causal = step.attributes["num_heads"], bool(step.attributes["unidirectional"])
    query, key, mask, hidden = step.input(0), step.optional_input(1), step.optional_input(4), step.optional_input(5)
    if step.optional_input(9) is not None:
        return "beam search with a shared past is not supported"
    parts = _parts(query, key, step.optional_input(2), heads)
    if parts is None:
        return "the shapes of its inputs contradict each other"
    launches: list[Launch | Chain] = []
    fresh = key is None or len(key.shape) != 4
    q, *pair = _shifted_parts(step, parts, fresh, launches)
    pasts = [step.optional_input(6 + at) if fresh else None for at in range(2)]
    filled = step.optional_input(8) if pasts[0] is not None else None
    if filled is None:
        presents = [step.output(at) if step.is_used(at) else None for at in (1, 2)]
        pair = [
            joined(step, past, part, present, launches)
            for past, part, present in zip(pasts, pair, presents, strict=True)
        ]
        visibility = KeyVisibility(step.constant_buffer(np.array([pair[0].shape[2] - q.shape[2]])))
    else:
        if step.is_used(3) or (mask is not None and len(mask.shape) == 4):
            return (
                "how many keys a shared buffer holds is not known where weights are asked for or a mask has all places"
            )
        found = _in_buffers(step, pasts, pair, filled, launches)
        if found is None:
            return "unsupported shape of the past"
        visibility = found
    k, v = pair
    if mask is not None:
        covered = k.shape[2] if filled is None else _covered(k.shape[2], mask, hidden)
        hidden = masked(step, mask, q.shape[0], q.shape[2], covered, hidden, launches)
        if hidden is None:
            return "unsupported mask shape"
    visibility.causal, visibility.mask = causal, hidden
    if step.is_used(3):
        visibility.captures[3] = step.output(3)
    y = step.output() if step.is_used(0) else step.temporary(query.dtype, (*query.shape[:2], heads * v.shape[3]))
    scale = step.attributes["scale"] or 1 / max(1, q.shape[3]) ** 0.5
    return [*launches, *attended(step, q, k, v, in_heads(y, heads), Scoring(scale, wide(query.dtype)), visibility)]
