"""GroupQueryAttention on the device: rotary embedding, KV-cache append, flash attention."""

from __future__ import annotations

import numpy as np

from ....runtime.cuda.kernel.elementwise import chain_step, elementwise_chain, elementwise_launch
from ....runtime.cuda.kernel.kernel import Launch
from ....runtime.cuda.kernel.operand import Operand, over
from ....runtime.cuda.kernel.reduce import Result, reduce_rows
from ....runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ....runtime.plan.kernel_api import Buffer, Chain
from ...attention.attention_cuda import KeyVisibility, Scoring, attended, in_heads, rotated
from ...attention.flash_cuda import Heads, fits
from ...attention.scaled_dot_product import BIASED, PROBABILITIES
from ...norm.moments import ROOT, rooted
from .group_query_attention import group_query_attention
from .kv_cache.append_cuda import behind, cached
from .kv_cache.quantized_cuda import Coding, coding
from .kv_cache.sliding_cuda import sliding

CAPTURED = {1: BIASED, 2: PROBABILITIES}
"""Values of the attribute ``qk_output`` -> the stage of scores that is an output."""
INT64 = np.dtype(np.int64)
F32 = np.dtype(np.float32)


def _start(last: int, length: int) -> int:
    return last + 1 - length


def _count(last: int) -> int:
    return last + 1


def _all(last: int, length: int) -> int:
    return length


def _zero(place: int) -> float:
    return 0


def _counted(score: float, key: int, count: int) -> float:
    return score if key < count else 0


def packed(query: Buffer, heads: int, groups: int) -> tuple[Heads, Heads, Heads]:
    """Queries, keys and values packed in one array."""
    n, length, width = query.shape
    size = width // (heads + 2 * groups)
    strides = (length * width, size, width, 1)
    starts = (0, heads * size, (heads + groups) * size)
    counts = (heads, groups, groups)
    q, k, v = (
        Heads(query.view((query.count - start,), start), (n, count, length, size), strides)
        for start, count in zip(starts, counts, strict=True)
    )
    return q, k, v


def parts_of(
    query: Buffer, key: Buffer | None, value: Buffer | None, heads: int, groups: int
) -> tuple[Heads, Heads, Heads]:
    """Queries, keys and values of one array or three."""
    if key is None or value is None:
        return packed(query, heads, groups)
    return in_heads(query, heads), in_heads(key, groups), in_heads(value, groups)


def rotated_heads(step: Step, x: Heads, positions: Buffer, index: int, launches: list[Launch | Chain]) -> Heads:
    """Queries or keys rotated by their positions; inputs `index` and the next are the caches of cosines and sines."""
    cos, sin = step.input(index), step.input(index + 1)
    made = in_heads(step.temporary(x.buffer.dtype, x.shape), None)
    is_interleaved = bool(step.attributes["rotary_interleaved"])
    launches += rotated(step, x, made, cos, sin, positions, is_interleaved, 2 * cos.shape[-1])
    return made


@cuda(group_query_attention)
def group_query_on_device(step: Step) -> Planned:
    """Plan growing, sliding and absent caches; other nodes run on the CPU."""
    given = step.attributes
    totals = step.constant(6)
    if totals is None:
        return "the number of keys is not a constant"
    query, key, value = step.input(0), step.optional_input(1), step.optional_input(2)
    heads, groups = given["num_heads"], given["kv_num_heads"]
    q, k, v = parts_of(query, key, value, heads, groups)
    n, _, length, size = q.shape
    longest = int(totals.reshape(-1)[0])
    first = longest == length
    if not fits(size, size) or query.dtype.name == "float64" or (not first and step.optional_input(3) is None):
        return "this head size is supported on the CPU only"
    forms: list[Coding | None] = []
    for index, name in enumerate(("k_quant_type", "v_quant_type")):
        form = coding(step, step.optional_input(3 + index), step.optional_input(12 + index), given[name], size)
        if isinstance(form, str):
            return form
        forms.append(form)
    positions, bias, sink = (step.optional_input(index) for index in (9, 10, 11))
    if bias is not None and (len(bias.shape) != 4 or bias.shape[0] not in (1, n) or bias.shape[1] not in (1, heads)):
        return "unsupported bias shape"
    if sink is None and given["smooth_softmax"] == 1:
        sink = step.constant_buffer(np.zeros(heads, np.float32))
    asked = CAPTURED.get(given["qk_output"]) if step.is_used(3) else None
    if asked is not None and (sink is not None or given["sliding_window_cache"]):
        return "score outputs with sinks or a sliding-window cache are supported on the CPU only"
    pasts, window = (step.optional_input(3), step.optional_input(4)), given["local_window_size"]
    capacity = _capacity(pasts, window, n) if given["sliding_window_cache"] else 0
    if capacity is None:
        return "the cache capacity does not match the window"
    gains = [step.optional_input(index) for index in (14, 15)]
    if any(gain is not None and gain.count != size for gain in gains):
        return "unsupported shape of the norm weights"
    launches: list[Launch | Chain] = []
    last = step.input(5).view((n,))
    starts, counts = step.temporary(INT64, (n,)), step.temporary(INT64, (n,))
    launches.append(
        elementwise_chain(_zero if first else _start, [last], starts, *([] if first else [length]), compute=INT64)
    )
    launches.append(
        elementwise_chain(_all if first else _count, [last], counts, *([length] if first else []), compute=INT64)
    )
    places = behind(step, starts, length, launches)
    if gains[0] is not None and gains[1] is not None:
        q, k = (_normalized(step, part, gain, launches) for part, gain in ((q, gains[0]), (k, gains[1])))
    if given["do_rotary"]:
        turns = places
        if positions is not None and first:
            turns = behind(step, positions.view((1,)), length, launches)
        elif positions is not None:
            turns = positions.view((n, length))
        q, k = (rotated_heads(step, part, turns, 7, launches) for part in (q, k))
    triples = list(zip(pasts, (k, v), forms, strict=True))
    if capacity:
        last_ones = sliding(step, starts, length, capacity, launches)
        keys, values = (
            last_ones.extended(step, step.input(3 + at), part, 1 + at, launches, form)
            for at, (_, part, form) in enumerate(triples)
        )
        starts, counts = last_ones.counts, last_ones.totals
        bias = None if bias is None else last_ones.seen(step, bias, length, launches)
    else:
        keys, values = (
            cached(step, past, part, places, 1 + at, longest, launches, form)
            for at, (past, part, form) in enumerate(triples)
        )
    visibility = KeyVisibility(starts, bool(given["causal"]), window - 1 if window > 0 else -1, -1, counts, bias, sink)
    y = step.output() if step.is_used(0) else step.temporary(query.dtype, (n, length, heads * size))
    scale = given["scale"] or 1 / max(1, size) ** 0.5
    if asked is not None:
        visibility.captures[asked] = step.temporary(query.dtype, (n, heads, length, keys.shape[2]))
    launches += attended(step, q, keys, values, in_heads(y, heads), Scoring(scale, F32, given["softcap"]), visibility)
    return launches if asked is None else [*launches, _scores(step, visibility.captures[asked], counts)]


def _capacity(pasts: tuple[Buffer | None, Buffer | None], window: int, batch: int) -> int | None:
    """Positions of caches that slide, None where these do not go with each other or with the window."""
    keys, values = pasts
    fits_window = (
        keys is not None and values is not None and keys.shape[:3] == values.shape[:3] and 0 < window <= keys.shape[2]
    )
    return keys.shape[2] if keys is not None and fits_window and keys.shape[0] == batch else None


def _scores(step: Step, found: Buffer, counts: Buffer) -> Launch:
    """Scores as an output: of the keys that count, zeros after them."""
    y, along = step.output(3), step.constant_buffer(np.arange(found.shape[3]))
    apply = chain_step(_counted, [found, along, counts], y.dtype, compute=F32)
    return elementwise_launch(
        [apply],
        y.shape,
        [Operand(found, found.strides), Operand(along, (0, 0, 0, 1)), Operand(counts, (1, 0, 0, 0))],
        over(y, y.shape),
    )


def _normalized(step: Step, x: Heads, gain: Buffer, launches: list[Launch | Chain]) -> Heads:
    made = in_heads(step.temporary(x.buffer.dtype, x.shape), None)
    operands = {"x": x.operand, "scale": Operand(gain, (0, 0, 0, 1))}
    epsilon = step.attributes["qk_norm_epsilon"]
    launches.append(
        reduce_rows(x.shape[:3], x.shape[3:], operands, ROOT, [Result(rooted, made.operand)], F32, epsilon=epsilon)
    )
    return made
