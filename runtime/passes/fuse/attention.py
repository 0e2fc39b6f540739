"""Attention fusion: MatMul, scale, mask, Softmax and MatMul become ONNX's Attention.

A query that a mask of -inf hides every key from was NaN, and becomes zero, as the standard says of Attention.
"""

from __future__ import annotations

import numpy as np

from ...ir.builder import Builder
from ...ir.graph import Dim, Value
from ...ir.registry import onnx
from ..pattern.pattern import Pattern, call, number, optional, product, var
from ..pattern.rewrite_rules import Match, Rule, is_float

OVERWHELMING = 1e30
"""Magnitude from which a score that replaces hidden keys may be added instead: it lies far below all other scores."""
LOWEST = -1e38
"""Mask value used instead of a dtype's lowest number, which onnxruntime's Attention treats as -inf: a query with all
keys hidden would change."""
HEADS_FIRST = [0, 2, 1, 3]

COND, OTHER = var("condition"), number("hidden")


def _masked(scores: Pattern) -> Pattern:
    """Scores with an additive mask, a Where mask, both or neither."""
    hidden = call("Where", COND, scores, OTHER) | call("Where", COND, OTHER, scores, name="where")
    return hidden + var("mask") | scores + var("mask") | hidden | scores


_scores = product(call("MatMul", product(var("q"), number("of q")), product(var("k"), number("of k"))), number("scale"))
_weights = optional(
    "Cast",
    call("Softmax", optional("Cast", _masked(optional("Cast", _scores, shared=False)), shared=False), name="softmax"),
    shared=False,
)
_guarded = call("Where", call("IsNaN", _weights), 0.0, _weights) | _weights
ATTENTION = call("MatMul", _guarded, var("v"))


def _attention(match: Match, build: Builder) -> Value | None:
    q, k, v = (match[name] for name in ("q", "k", "v"))
    scale = match.number("of q") * match.number("of k") * match.number("scale")
    softmax = match.node("softmax")
    weights = softmax.outputs[0]
    if (
        q.dtype is None
        or not q.dtype is k.dtype is v.dtype
        or not is_float(q, k, v)
        or scale <= 0
        or weights.dtype is None
    ):
        return None
    wide = weights.dtype.name == "f32" and q.dtype.name in ("f16", "bf16")
    axis = softmax.attributes.get("axis", -1)
    if (weights.dtype is not q.dtype and not wide) or weights.shape is None or axis not in (-1, len(weights.shape) - 1):
        return None
    keys = transposed(k, build)
    if keys is None or not _batches_fit(q, keys, v):
        return None
    mask = _mask(match, build, q)
    if (match.has("mask") or match.has("hidden")) and (
        mask is None or mask.dtype is not q.dtype or not _mask_fits(mask, q)
    ):
        return None
    if mask is not None:
        mask = _whole(mask, q, keys, v, build)
        if mask is None:
            return None
    rank = 4 if mask is None else len(mask.shape or ())
    if mask is not None and rank < 4:
        one_head = rank == len(q.shape or ()) == 3
        mask = build.add("Unsqueeze", [mask, build.constant([1] if one_head else list(range(4 - rank)))])
    attributes = {"scale": scale, **({"q_num_heads": 1, "kv_num_heads": 1} if len(q.shape or ()) == 3 else {})}
    return build.add(
        "Attention",
        [q, keys, v, *([] if mask is None else [mask])],
        {**attributes, **({"softmax_precision": 1} if wide else {})},
    )


def transposed(value: Value, build: Builder) -> Value | None:
    """Matrices with the last two axes swapped; the original value if `value` is itself such a transpose."""
    maker, shape = value.producer, value.shape
    if shape is None or len(shape) not in (3, 4):
        return None
    last = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    if maker is None or maker.op is not onnx.Transpose or maker.inputs[0] is None:
        return build.add("Transpose", [value], {"perm": last})
    before = maker.attributes.get("perm") or list(range(len(shape)))[::-1]
    order = [before[axis] for axis in last]
    return maker.inputs[0] if order == sorted(order) else build.add("Transpose", [maker.inputs[0]], {"perm": order})


def _batches_fit(q: Value, k: Value, v: Value) -> bool:
    """Whether the batch sizes are known to be equal, and keys have as many heads as queries, or one."""
    if (
        q.shape is None
        or k.shape is None
        or v.shape is None
        or not len(q.shape) == len(k.shape) == len(v.shape) in (3, 4)
    ):
        return False
    batch = known_equal(q.shape[0], k.shape[0]) and known_equal(q.shape[0], v.shape[0])
    if len(q.shape) == 3:
        return batch
    heads = q.shape[1], k.shape[1], v.shape[1]
    return (
        batch
        and all(isinstance(count, int) and count > 0 for count in heads)
        and heads[1] == heads[2]
        and heads[1] in (heads[0], 1)
    )


def known_equal(one: Dim, other: Dim) -> bool:
    """Whether two dimensions are the same number or symbol."""
    return one is not None and one == other


def _mask(match: Match, build: Builder, q: Value) -> Value | None:
    """The additive mask of a match, None without one or where it cannot be expressed."""
    given = match.get("mask")
    given = None if given is None else _tempered(match, given, build)
    if not match.has("hidden"):
        return given
    hidden = match.number("hidden")
    if hidden > -OVERWHELMING or q.dtype is None or (q.dtype.name == "f16" and hidden != -np.inf):
        return None
    with np.errstate(over="ignore"):
        low, zero = (
            build.constant(np.array(number, q.dtype.as_numpy()))
            for number in (hidden if hidden == -np.inf else max(hidden, LOWEST), 0.0)
        )
    bias = build.add("Where", [match["condition"], *((low, zero) if match.has("where") else (zero, low))])
    return bias if given is None else build.add("Add", [bias, given])


def _tempered(match: Match, mask: Value, build: Builder) -> Value:
    """The mask with a dtype's lowest number replaced by `LOWEST`."""
    maker = mask.producer
    made = maker is not None and maker.op in (onnx.Where, onnx.Mul)
    if maker is None or not made or mask.dtype is None or mask.dtype.name not in ("f32", "bf16", "f64"):
        return mask
    numbers = [match.view.number(value) for value in maker.inputs]
    if not any(number is not None and number < LOWEST and number != -np.inf for number in numbers):
        return mask
    low = build.constant(np.array(LOWEST, mask.dtype.as_numpy()))
    inputs = [
        low if number is not None and -np.inf < number < LOWEST else value
        for value, number in zip(maker.inputs, numbers, strict=True)
    ]
    return build.add(maker.op, inputs, maker.attributes)


def _mask_fits(mask: Value, q: Value) -> bool:
    """Whether every dimension of a mask but the last is 1 or that of the queries."""
    if mask.shape is None or q.shape is None or not 2 <= len(mask.shape) <= len(q.shape):
        return False
    pairs = zip(mask.shape[-2::-1], q.shape[-2::-1], strict=False)
    return all(length == 1 or known_equal(length, wanted) for length, wanted in pairs)


def _whole(mask: Value, q: Value, keys: Value, v: Value, build: Builder) -> Value | None:
    """A mask expanded to one row per query and one element per key.

    An unknown length may be 1; if it were neither 1 nor the number of keys, the product with the values would be
    invalid.
    """
    if mask.shape is None or q.shape is None or keys.shape is None or v.shape is None:
        return None
    queries, count = q.shape[-2], keys.shape[-2]
    if known_equal(mask.shape[-2], queries) and known_equal(mask.shape[-1], count):
        return mask
    if not known_equal(mask.shape[-1], count) and not known_equal(count, v.shape[-2]):
        return None
    lengths = [_length(value, build) for value in (q, keys)]
    ones = [build.constant([1] * (len(mask.shape) - 2))] if len(mask.shape) > 2 else []
    return build.add("Expand", [mask, build.add("Concat", [*ones, *lengths], {"axis": 0})])


def _length(value: Value, build: Builder) -> Value:
    """The second-to-last dimension, as a one-element value."""
    axis = len(value.shape or ()) - 2
    known = (value.shape or ())[axis]
    return (
        build.constant([known])
        if isinstance(known, int)
        else build.add("Shape", [value], {"start": axis, "end": axis + 1})
    )


def _repeated(x: str) -> Pattern:
    """Grouped heads: each head repeated several times in a row."""
    column = call("Unsqueeze", var(x), ..., name=f"column of {x}", shared=True)
    many = call("Expand", column, ..., name=f"many of {x}", shared=True) | call(
        "Tile", column, ..., name=f"many of {x}", shared=True
    )
    return call("Reshape", many, ..., name=f"heads of {x}", shared=True)


def _shared_heads(match: Match, build: Builder) -> Value | None:
    node = match.root
    for name in ("k", "v"):
        x = match[name].shape
        column, many, heads = (match.node(f"{part} of {name}").outputs[0].shape for part in ("column", "many", "heads"))
        if (
            x is None
            or column is None
            or many is None
            or heads is None
            or not len(x) == len(heads) == 4
            or len(column) != 5
            or len(many) != 5
        ):
            return None
        times = many[2]
        counts = isinstance(x[1], int) and isinstance(times, int) and heads[1] == x[1] * times
        same = (
            column == (*x[:2], 1, *x[2:])
            and (*many[:2], 1, *many[3:]) == column
            and (heads[0], *heads[2:]) == (x[0], *x[2:])
        )
        if not counts or not same or x[0] is None or x[3] is None:
            return None
    rest = node.inputs[3:]
    if any(value is not None for value in rest[1:]):
        return None
    return build.add("Attention", [node.inputs[0], match["k"], match["v"], *rest], node.attributes)


def _heads_of(x: str) -> Pattern:
    split = call("Reshape", var(x), ..., name=f"split {x}", shared=True)
    return call("Transpose", split, perm=HEADS_FIRST, shared=True)


def _merged_heads(match: Match, build: Builder) -> Value | None:
    inner, root = match.node("attention"), match.root.outputs[0]
    heads = []
    for name in ("q", "k", "v"):
        flat, split = match[name].shape, match.node(f"split {name}").outputs[0].shape
        if (
            flat is None
            or split is None
            or len(flat) != 3
            or len(split) != 4
            or not _same_rows(flat, split)
            or not _product(split, flat[2])
        ):
            return None
        heads.append(split[2])
    mixed = inner.outputs[0].shape
    if (
        mixed is None
        or root.shape is None
        or len(root.shape) != 3
        or not _product((0, 0, mixed[1], mixed[3]), root.shape[2])
    ):
        return None
    if (
        heads[1] != heads[2]
        or not known_equal(mixed[0], root.shape[0])
        or not known_equal(mixed[0], (match["q"].shape or (None,))[0])
    ):
        return None
    rest = inner.inputs[3:]
    if any(value is not None for value in rest[1:]):
        return None
    attributes = {**inner.attributes, "q_num_heads": heads[0], "kv_num_heads": heads[1]}
    return build.add("Attention", [match["q"], match["k"], match["v"], *rest], attributes)


def _same_rows(flat: tuple[Dim, ...], split: tuple[Dim, ...]) -> bool:
    """Whether the first two dimensions are equal; one equality implies the other."""
    return any(known_equal(flat[axis], split[axis]) and flat[axis] != 0 for axis in (0, 1))


def _product(split: tuple[Dim, ...], width: Dim) -> bool:
    heads, size = split[2], split[3]
    return isinstance(heads, int) and isinstance(size, int) and heads * size == width and width != 0


FUSION_RULES = (
    Rule("Attention", ATTENTION, _attention, 23),
    Rule(
        "Attention of fewer key heads",
        call("Attention", var("q"), _repeated("k"), _repeated("v"), ...),
        _shared_heads,
        23,
    ),
    Rule(
        "Attention of heads side by side",
        call(
            "Reshape",
            call(
                "Transpose",
                call("Attention", _heads_of("q"), _heads_of("k"), _heads_of("v"), ..., name="attention"),
                perm=HEADS_FIRST,
            ),
            ...,
        ),
        _merged_heads,
        23,
    ),
)
