"""Gradients of attention: formulas of the softmax over scaled products, with what a query may see."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from ....runtime.ir.op import Undecomposable
from ....runtime.tensor.dtype import BY_ONNX, F32, F64
from ...attention.attention import attention
from ...attention.flex_attention import flex_attention
from ...contrib.attention.group_query_attention import group_query_attention
from ...rules.expression import Term
from ..gradient_rule import Step, differentiated, differentiated_as
from ..propagation import is_moving, operands, spliced, through

Bounds = tuple[bool, int, int]
"""Whether a query sees no later key, and how many keys before and after it, -1 for all."""


def _in_heads(x: Term, heads: int) -> Term:
    """[batch, length, heads x size] as [batch, heads, length, size]."""
    if x.rank == 4:
        return x
    return x.call("Reshape", x.integers([0, 0, heads, -1])).transposed([0, 2, 1, 3])


def _side_by_side(y: Term) -> Term:
    """[batch, heads, length, size] as [batch, length, heads x size]."""
    return y.transposed([0, 2, 1, 3]).call("Reshape", y.integers([0, 0, -1]))


def _seen(q: Term, k: Term, bounds: Bounds, offset: Term, length: Term | None) -> Term | None:
    """Whether a query sees a key, in a shape that broadcasts to [batch, 1, queries, keys]; None where each sees all.

    Args:
        offset: position of the first query among the keys, [1] or [batch].
        length: how many keys count, [batch].
    """
    causal, left, right = bounds
    one, zero = q.integers(1), q.integers(0)
    keys = zero.call("Range", k.length(2).scalar, one)
    rows = zero.call("Range", q.length(2).scalar, one).unsqueezed(1) + offset.unsqueezed(1, 2)
    found = [keys <= rows] if causal else []
    if left >= 0:
        found.append(keys >= rows - left)
    if right >= 0:
        found.append(keys <= rows + right)
    if length is not None:
        found.append(keys < length.unsqueezed(1, 2))
    if not found:
        return None
    seen, *others = found
    for other in others:
        seen = seen.call("And", other)
    return seen.unsqueezed(1)


def _attended(
    q: Term, k: Term, v: Term, bias: Term | None, seen: Term | None, options: dict[str, Any]
) -> tuple[Term, Term]:
    """Attention outputs in heads, and the attention weights. Queries without visible keys yield zeros."""
    heads, groups = q.lengths[1], k.lengths[1]
    if heads != groups:
        k, v = (_repeated(x, heads // groups) for x in (k, v))
    scores = q.call("MatMul", k.transposed([0, 1, 3, 2])) * options["scale"]
    if options.get("softcap"):
        scores = (scores / options["softcap"]).call("Tanh") * options["softcap"]
    scores = options["score_mod"](scores) if "score_mod" in options else scores
    masks = [mask for mask in (bias, seen) if mask is not None]
    for mask in masks:
        is_bool = mask.dtype.name == "bool"
        scores = mask.where(scores, -math.inf) if is_bool else scores + mask.call("CastLike", scores)
    sink = options.get("sink")
    if sink is not None:
        keys = scores.lengths[3]
        column = sink.reshaped(1, heads, 1, 1).call("Expand", scores.integers([*scores.lengths[:3], 1]))
        weights = scores.call("Concat", column, axis=-1).call("Softmax", axis=-1).part(3, 0, keys)
    else:
        weights = scores.call("Softmax", axis=-1)
    if masks:
        weights = weights.call("IsNaN").where(0.0, weights)
    weights = options["prob_mod"](weights) if "prob_mod" in options else weights
    return weights.call("MatMul", v), weights


def _repeated(x: Term, times: int) -> Term:
    """[batch, groups, length, size] with each head so many times in a row."""
    batch, groups, length, size = x.lengths
    wide = x.unsqueezed(2).call("Expand", x.integers([1, 1, times, 1, 1]))
    return wide.reshaped(batch, groups * times, length, size)


@differentiated_as(attention)
def _attention(step: Step) -> list[Term | None]:
    q, k, v, mask, past_key, past_value, length = (*step.x, None, None, None, None)[:7]
    assert q is not None
    assert k is not None
    assert v is not None
    options, flat = step.attributes, q.rank == 3
    q, k, v = (_in_heads(x, options[f"{kind}_num_heads"]) for x, kind in ((q, "q"), (k, "kv"), (v, "kv")))
    offset = step.integers([0])
    if past_key is not None and past_value is not None:
        offset = past_key.length(2)
        k, v = past_key.call("Concat", k, axis=2), past_value.call("Concat", v, axis=2)
    if length is not None:
        length = length.reshaped(-1)
        offset = length.call("Sub", q.length(2))
    bounds = bool(options["is_causal"]), options["left_window_size"], options["right_window_size"]
    scale = options["scale"] if options["scale"] is not None else 1 / math.sqrt(max(q.lengths[3], 1))
    scoring = {"scale": scale, "softcap": options["softcap"]}
    y, weights = _attended(q, k, v, mask, _seen(q, k, bounds, offset, length), scoring)
    scores = weights if options["qk_matmul_output_mode"] == 3 else None
    return [_side_by_side(y) if flat else y, k, v, scores]


@differentiated_as(group_query_attention)
def _group_query_attention(step: Step) -> list[Term | None]:
    """The gradient of prompts: no earlier keys, and tokens of a batch see those before them."""
    query, key, value, past_key, *_ = step.x
    cos, sin, positions, bias, sink, *_, q_gain, k_gain = (*step.x[7:], *(None,) * 9)[:9]
    assert query is not None
    options = step.attributes
    if past_key is not None:
        raise Undecomposable("with earlier keys in a cache")
    heads, groups = options["num_heads"], options["kv_num_heads"]
    if key is None or value is None:
        packed = _in_heads(query, heads + 2 * groups)
        ends = (0, heads, heads + groups, heads + 2 * groups)
        q, k, v = (packed.part(1, start, stop) for start, stop in itertools.pairwise(ends))
    else:
        q, k, v = (_in_heads(part, count) for part, count in ((query, heads), (key, groups), (value, groups)))
    if q_gain is not None and k_gain is not None:
        epsilon = options["qk_norm_epsilon"]
        q, k = (
            part.call("RMSNormalization", gain, axis=-1, epsilon=epsilon) for part, gain in ((q, q_gain), (k, k_gain))
        )
    batch, _, length, size = q.lengths
    if options["do_rotary"] and cos is not None and sin is not None:
        places = step.integers([*range(length)]).call("Expand", step.integers([batch, length]))
        if positions is not None:
            places = places.call("Add", positions.reshaped(-1).part(0, 0, 1))
        rotary = {"interleaved": options["rotary_interleaved"], "rotary_embedding_dim": 2 * cos.lengths[1]}
        q, k = (part.call("RotaryEmbedding", cos, sin, places, **rotary) for part in (q, k))
    if bias is not None:
        bias = bias.part(3, 0, length)
    window = options["local_window_size"]
    bounds = bool(options["causal"]), window - 1 if window > 0 else -1, -1
    scoring = {"scale": options["scale"] or 1 / math.sqrt(max(size, 1)), "softcap": options["softcap"], "sink": sink}
    if sink is None and options["smooth_softmax"] == 1:
        scoring["sink"] = q.constant([0.0] * heads, q.dtype.as_numpy())
    y, weights = _attended(q, k, v, bias, _seen(q, k, bounds, step.integers([0]), None), scoring)
    return [_side_by_side(y), k, v, weights if options["qk_output"] == 2 else None]


@differentiated(flex_attention)
def _flex_attention(step: Step) -> list[Term | None]:
    """The subgraphs become part of the graph."""
    first, options = len(step.build.nodes), step.attributes
    number, dtype = options["softmax_precision"], step.input(0).dtype
    precision = BY_ONNX[number] if number is not None else F64 if dtype is F64 else F32

    def through_graph(name: str) -> Callable[[Term], Term]:
        graph = options[name]
        return lambda x: x if graph is None else spliced(graph, step.build, [x])[0].cast(precision)

    q, k, v = (step.input(index).cast(precision) for index in range(3))
    scale = options["scale"] if options["scale"] is not None else 1 / math.sqrt(max(q.lengths[3], 1))
    mods = {"score_mod": through_graph("score_mod"), "prob_mod": through_graph("prob_mod")}
    y, _ = _attended(q, k, v, None, None, {"scale": scale, **mods})
    y = y.cast(step.input(2).dtype)
    wanted = [value if is_moving(value) else None for value in operands(step.node)]
    return through(step.build, step.build.nodes[first:], {y.value: step.grad}, wanted)
