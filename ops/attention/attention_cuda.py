"""Attention and RotaryEmbedding on the device: flash attention if it fits, otherwise products, masks and softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.cuda.kernel.elementwise import chain_step, copy_launch, elementwise_chain, elementwise_launch, unchanged
from ...runtime.cuda.kernel.kernel import Launch
from ...runtime.cuda.kernel.operand import Lookup, Operand, over
from ...runtime.cuda.kernel.reduce import Result, reduce_rows
from ...runtime.cuda.matmul.tiled import Axes, Contraction, product
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import Buffer, Chain
from ...runtime.plan.rows import Fold, add, larger
from .attention import attention, softmax_dtype, working
from .flash_cuda import Heads, Rule, fits, flash
from .flash_mma_cuda import prompt, tensor_kind
from .rotary_embedding import rotary_embedding

INF = math.inf
INT64 = np.dtype(np.int64)


def in_heads(buffer: Buffer, heads: int | None) -> Heads:
    """[batch, heads, length, size], or [batch, length, heads x size] where `heads` are given."""
    if len(buffer.shape) == 4:
        n, count, length, size = buffer.shape
        return Heads(buffer, (n, count, length, size), (count * length * size, length * size, size, 1))
    n, length, width = buffer.shape
    count = heads or 1
    size = width // count
    return Heads(buffer, (n, count, length, size), (length * width, size, width, 1))


@dataclass
class KeyVisibility:
    """The keys that a query sees, as on the CPU; `offset` and `length` are arrays on the device."""

    offset: Buffer
    causal: bool = False
    left: int = -1
    right: int = -1
    length: Buffer | None = None
    mask: Buffer | None = None
    sink: Buffer | None = None
    captures: dict[int, Buffer] = field(default_factory=dict)


def _scaled(x: float, scale: float) -> float:
    return x * scale


def _capped(x: float, cap: float) -> float:
    return math.tanh(x / cap) * cap


def _masked(x: float, mask: bool) -> float:
    return x if mask else -INF


def _biased(x: float, mask: float) -> float:
    return x + mask


def _seen(x: float, query: int, key: int, offset: int, causal: float, left: float, right: float) -> float:
    place = query + offset
    hidden = (causal > 0 and key > place) or (left >= 0 and key < place - left) or (right >= 0 and key > place + right)
    return -INF if hidden else x


def _within(x: float, key: int, length: int) -> float:
    return x if key < length else -INF


def _element(x: float) -> float:
    return x


def _top(total: float) -> float:
    return 0 if total == -INF else total


def _power(x: float, top: float) -> float:
    return math.exp(x - top)


def _share(x: float, top: float, total: float) -> float:
    return math.exp(x - top) / total if total != 0 else total


FOLDS = (Fold("top", _element, larger, _top), Fold("total", _power, add))


@dataclass(frozen=True)
class Scoring:
    """Scale, softcap and precision of attention scores.

    Attributes:
        scale: of the products of queries and keys.
        dtype: of scores and their softmax.
        softcap: scores are kept within it by a tanh, where it is not 0.
        softmax_precision: dtype that scores and shares are rounded to, None for `dtype`.
    """

    scale: float
    dtype: np.dtype[Any]
    softcap: float = 0.0
    softmax_precision: np.dtype[Any] | None = None


def attended(
    step: Step, q: Heads, k: Heads, v: Heads, y: Heads, scoring: Scoring, visibility: KeyVisibility
) -> list[Launch | Chain]:
    """y = softmax(q k^T scale, over what is seen) v; heads of queries share those of keys."""
    scale, softcap, work, precision = scoring.scale, scoring.softcap, scoring.dtype, scoring.softmax_precision
    n, heads, queries, size = q.shape
    groups, keys, width = k.shape[1], k.shape[2], v.shape[3]
    each = heads // groups
    if work == np.float32 and precision in (None, work) and not visibility.captures and fits(size, width):
        rule = Rule(
            scale,
            softcap,
            visibility.offset,
            visibility.causal,
            visibility.left,
            visibility.right,
            visibility.length,
            visibility.mask,
            visibility.sink,
        )
        kind = tensor_kind(q, k, v)
        return [prompt(q, k, v, y, rule, kind)] if kind is not None else [*flash(q, k, v, y, rule)]
    assert visibility.sink is None, "sinks are added tile by tile"
    scores = step.temporary(work, (n, heads, queries, keys))
    launches: list[Launch | Chain] = [
        product(
            q.buffer,
            k.buffer,
            scores,
            Contraction(
                stack=Axes(
                    [n, groups, each],
                    [q.strides[0], each * q.strides[1], q.strides[1]],
                    [k.strides[0], k.strides[1], 0],
                    [scores.strides[0], each * scores.strides[1], scores.strides[1]],
                ),
                rows=Axes([queries], [q.strides[2]], None, [keys]),
                columns=Axes([keys], None, [k.strides[2]], [1]),
                depth=Axes([size], [q.strides[3]], [k.strides[3]], None),
            ),
        )
    ]

    def then(function: Any, *operands: Buffer, numbers: Sequence[float] = ()) -> None:
        launches.append(elementwise_chain(function, [scores, *operands], scores, *numbers, compute=work))

    def captured(stage: int) -> None:
        target = visibility.captures.get(stage)
        if target is not None:
            launches.append(Chain((chain_step(unchanged, [scores], target.dtype, compute=work),), target))

    then(_scaled, numbers=[scale])
    captured(0)
    if softcap > 0:
        then(_capped, numbers=[softcap])
    captured(1)
    if visibility.mask is not None:
        mask = _padded(step, visibility.mask, keys, launches)
        then(_masked if mask.dtype == np.bool_ else _biased, mask)
    if visibility.causal or visibility.left >= 0 or visibility.right >= 0:
        places = (
            step.constant_buffer(np.arange(queries).reshape(-1, 1)),
            step.constant_buffer(np.arange(keys)),
            visibility.offset.view((visibility.offset.count, 1, 1, 1)),
        )
        then(_seen, *places, numbers=[int(visibility.causal), visibility.left, visibility.right])
    if visibility.length is not None:
        then(_within, step.constant_buffer(np.arange(keys)), visibility.length.view((n, 1, 1, 1)))
    captured(2)
    _round(step, scores, precision, launches)
    flat = scores.view((n * heads * queries, keys))
    whole = over(flat, flat.shape)
    launches.append(reduce_rows(flat.shape[:1], flat.shape[1:], {"x": whole}, FOLDS, [Result(_share, whole)], work))
    _round(step, scores, precision, launches)
    captured(3)
    launches.append(
        product(
            scores,
            v.buffer,
            y.buffer,
            Contraction(
                stack=Axes(
                    [n, groups, each],
                    [scores.strides[0], each * scores.strides[1], scores.strides[1]],
                    [v.strides[0], v.strides[1], 0],
                    [y.strides[0], each * y.strides[1], y.strides[1]],
                ),
                rows=Axes([queries], [keys], None, [y.strides[2]]),
                columns=Axes([width], None, [v.strides[3]], [y.strides[3]]),
                depth=Axes([keys], [1], [v.strides[2]], None),
            ),
            sums=work,
        )
    )
    return launches


def _round(step: Step, scores: Buffer, precision: np.dtype[Any] | None, launches: list[Launch | Chain]) -> None:
    if precision is not None and precision != scores.dtype:
        rounded = step.temporary(precision, scores.shape)
        launches += [
            elementwise_chain(unchanged, [scores], rounded, compute=scores.dtype),
            elementwise_chain(unchanged, [rounded], scores, compute=scores.dtype),
        ]


def _padded(step: Step, mask: Buffer, keys: int, launches: list[Launch | Chain]) -> Buffer:
    """Keys beyond the end of a mask are hidden."""
    if mask.shape[-1] in (1, keys):
        return mask
    made = step.temporary(mask.dtype, (*mask.shape[:-1], keys))
    places = np.arange(keys)
    table = step.constant_buffer(np.where(places < mask.shape[-1], places, -1))
    along = (*[0] * (len(mask.shape) - 1), 1)
    fill = 0.0 if mask.dtype == np.bool_ else -INF
    source = Operand(
        mask, (*mask.strides[:-1], 0), lookups=(Lookup(table, along, 1, mask.shape[-1], wraps=False),), fill=fill
    )
    launches.append(copy_launch(made.shape, source, over(made, made.shape)))
    return made


def joined(step: Step, past: Buffer | None, new: Heads, target: Buffer | None, launches: list[Launch | Chain]) -> Heads:
    """Keys or values after those of the past, in an array of their own where there is a past or someone wants it."""
    if past is None and target is None:
        return new
    before = past.shape[2] if past is not None else 0
    shape = (new.shape[0], new.shape[1], before + new.shape[2], new.shape[3])
    made = target if target is not None else step.temporary(new.buffer.dtype, shape)
    if past is not None and past.count:
        launches.append(copy_launch(past.shape, over(past, past.shape), Operand(made, made.strides)))
    launches.append(copy_launch(new.shape, new.operand, Operand(made, made.strides, before * shape[3])))
    return in_heads(made, None)


def _difference(length: int, queries: int) -> int:
    return length - queries


@cuda(attention)
def attention_on_device(step: Step) -> Planned:
    """Plan every form of Attention."""
    attributes = step.attributes
    q = in_heads(step.input(0), attributes["q_num_heads"])
    k, v = (in_heads(step.input(index), attributes["kv_num_heads"]) for index in (1, 2))
    launches: list[Launch | Chain] = []
    past = step.optional_input(4)
    k = joined(step, past, k, step.output(1) if step.is_used(1) else None, launches)
    v = joined(step, step.optional_input(5), v, step.output(2) if step.is_used(2) else None, launches)
    if q.shape[3] != k.shape[3] or q.shape[1] % k.shape[1]:
        return "the shapes of its inputs contradict each other"
    lengths = step.optional_input(6)
    offset, length = step.constant_buffer(np.array([past.shape[2] if past is not None else 0])), None
    if lengths is not None:
        length = lengths.view((lengths.count,))
        offset = step.temporary(INT64, length.shape)
        launches.append(elementwise_chain(_difference, [length], offset, q.shape[2], compute=INT64))
    precision = softmax_dtype(attributes["softmax_precision"], "Attention")
    work = np.dtype(working(np.empty(0, q.buffer.dtype), precision))
    y = in_heads(step.output(), q.shape[1]) if len(step.output().shape) == 3 else in_heads(step.output(), None)
    visibility = KeyVisibility(
        offset,
        bool(attributes["is_causal"]),
        attributes["left_window_size"],
        attributes["right_window_size"],
        length,
        step.optional_input(3),
    )
    if step.is_used(3):
        visibility.captures[attributes["qk_matmul_output_mode"]] = step.output(3)
    scale = attributes["scale"]
    factor = scale if scale is not None else 1 / max(q.shape[3], 1) ** 0.5
    return [*launches, *attended(step, q, k, v, y, Scoring(factor, work, attributes["softcap"], precision), visibility)]


def _rotate_first(one: float, two: float, cos: float, sin: float) -> float:
    return cos * one - sin * two


def _rotate_second(one: float, two: float, cos: float, sin: float) -> float:
    return sin * one + cos * two


def rotated(
    step: Step, x: Heads, y: Heads, cos: Buffer, sin: Buffer, positions: Buffer | None, interleaved: bool, size: int
) -> list[Launch | Chain]:
    """Pairs of the first `size` elements of each head rotated; caches are [positions, half], or [batch, length, half]
    without positions."""
    n, heads, length, width = x.shape
    half = size // 2
    box = (n, heads, length, half)
    step_of, apart = (2, 1) if interleaved else (1, half)
    if positions is not None:
        strides, rows = (0, 0, 0, 1), cos.shape[0]
        table = (0, 0, positions.strides[-1] if positions.count > 1 else 0, 0)
        if len(positions.shape) == 2:
            table = (
                positions.strides[0] if positions.shape[0] > 1 else 0,
                0,
                positions.strides[1] if positions.shape[1] > 1 else 0,
                0,
            )
        flag = step.flag(f"a position of {step.node.op.name} is out of range of its caches")
        lookups: tuple[Lookup, ...] = (Lookup(positions, table, cos.shape[-1], rows, flag=flag),)
    else:
        strides, lookups = (cos.strides[0] if cos.shape[0] > 1 else 0, 0, cos.strides[1], 1), ()
    angles = [Operand(item, strides, lookups=lookups) for item in (cos, sin)]
    pair = [Operand(x.buffer, (*x.strides[:3], step_of), place) for place in (0, apart)]
    launches: list[Launch | Chain] = []
    for place, function in ((0, _rotate_first), (apart, _rotate_second)):
        target = Operand(y.buffer, (*y.strides[:3], step_of), place)
        apply = chain_step(function, [x.buffer, x.buffer, cos, sin], y.buffer.dtype)
        launches.append(elementwise_launch([apply], box, [*pair, *angles], target))
    if size < width:
        rest = (n, heads, length, width - size)
        launches.append(copy_launch(rest, Operand(x.buffer, x.strides, size), Operand(y.buffer, y.strides, size)))
    return launches


@cuda(rotary_embedding)
def rotary_on_device(step: Step) -> Planned:
    """Rotate with two launches, one for each element of a pair."""
    x, heads = step.input(0), step.attributes["num_heads"]
    one, two = in_heads(x, heads), in_heads(step.output(), heads)
    size = step.attributes["rotary_embedding_dim"] or one.shape[3]
    return rotated(
        step, one, two, step.input(1), step.input(2), step.optional_input(3), bool(step.attributes["interleaved"]), size
    )
