"""Fused normalizations: with a residual, with embedding lookups, with a gate."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable

import numpy as np

from ....runtime.ir.domain import MICROSOFT
from ....runtime.ir.op import case, op
from ....runtime.ir.shape_inference import Inference
from ....runtime.plan.kernel_api import BaseStep
from ....runtime.plan.rows import Described, Fold, Output, Rows, add
from ....runtime.tensor.dtype import BY_ONNX, F32, I32
from ...norm.layer_norm import first_axis, over_last_axes, rms_normalized
from ...norm.moments import ROOT, inverse_root, rooted, the_inverse, the_mean
from ...reduce.reduce import mean_of
from ...rules.decomposition import composed
from ...rules.expression import Term
from ...rules.shape_rules import broadcast, refuse_outside, same_as_input, shape_error


def _infer_simplified(node: Inference) -> None:
    x = node.shape(0)
    first = None if x is None else first_axis(node.attributes["axis"], len(x), "SimplifiedLayerNormalization")
    node.set(0, node.dtype(1), x)
    node.set(
        1,
        BY_ONNX.get(node.attributes["stash_type"], F32),
        None if x is None or first is None else (*x[:first], *(1,) * (len(x) - first)),
    )


def _simplified_rows(step: BaseStep) -> Described:
    return over_last_axes(step, ROOT, rooted, (1, the_inverse))


@op(
    "SimplifiedLayerNormalization",
    types="float float -> 2",
    infer=_infer_simplified,
    rows=_simplified_rows,
    examples=[
        case("f32[2,3,4]", "f32[4]"),
        case("f32[2,3,4]", "f32[3,4]", axis=1, epsilon=0.1, outputs=2),
        case("f32[0,3]", "f32[3]"),
    ],
)
def simplified_layer_normalization(
    x: np.ndarray, scale: np.ndarray, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """RMSNormalization as onnxruntime had it before the standard did, in the standard's own domain; and the reciprocal
    root mean square."""
    axes = tuple(range(first_axis(axis, x.ndim, "SimplifiedLayerNormalization"), x.ndim))
    y, inverse = rms_normalized(x, scale, epsilon, axes)
    return y.astype(scale.dtype), inverse.astype(BY_ONNX.get(stash_type, F32).as_numpy())


def _infer_skip(node: Inference) -> None:
    x = node.shape(0)
    refuse_outside(node, *range(1, len(node)))
    node.set(0, node.dtype(0), x)
    for index in (1, 2):
        node.set(index, F32, None if x is None else (*x[:-1], 1))
    node.set(3, node.dtype(0), x)


def _summed(x: Term, *others: Term | None) -> Term:
    total = x
    for other in others:
        if other is not None:
            if broadcast(x.value.shape, other.value.shape) != x.value.shape:
                raise shape_error(
                    "SkipLayerNormalization", f"a residual of {other.value.shape} does not fit {x.value.shape}"
                )
            total = total + other
    return total


def _total(x: float, skip: float, bias: float) -> float:
    return x + skip + bias


def _deviation(x: float, skip: float, bias: float, mean: float) -> float:
    return (x + skip + bias - mean) * (x + skip + bias - mean)


def _square(x: float, skip: float, bias: float) -> float:
    return (x + skip + bias) * (x + skip + bias)


def _shifted(x: float, skip: float, bias: float, mean: float, inverse: float, gamma: float, beta: float) -> float:
    return (x + skip + bias - mean) * inverse * gamma + beta


def _rooted(x: float, skip: float, bias: float, inverse: float, gamma: float) -> float:
    return (x + skip + bias) * inverse * gamma


def _nothing(count: int) -> float:
    return 0


SKIP_MOMENTS = (Fold("mean", _total, add, mean_of), Fold("inverse", _deviation, add, inverse_root))
SKIP_ROOT = (Fold("inverse", _square, add, inverse_root),)


def _skip_rows(centred: bool, step: BaseStep) -> Described:
    """Normalization of sums; a bias that is absent is zero."""
    given = [*step.inputs, *[None] * (5 - len(step.inputs))]
    beta, bias = (given[3], given[4]) if centred else (None, given[3])
    named = {"x": given[0], "skip": given[1], "gamma": given[2], "beta": beta, "bias": bias}
    operands = {name: buffer for name, buffer in named.items() if buffer is not None}
    zeros = {name: 0.0 for name, buffer in named.items() if buffer is None}
    form = _shifted if centred else _rooted
    statistics = {1: the_mean if centred else _nothing, 2: the_inverse}
    outputs = [Output(form, step.output())] if step.is_used(0) else []
    outputs += [
        Output(function, step.output(index), True) for index, function in statistics.items() if step.is_used(index)
    ]
    outputs += [Output(_total, step.output(3))] if step.is_used(3) else []
    shape = operands["x"].shape
    folds = SKIP_MOMENTS if centred else SKIP_ROOT
    return Rows(shape, [len(shape) - 1], operands, folds, outputs, {"epsilon": step.attributes["epsilon"], **zeros})


@composed(
    "SkipSimplifiedLayerNormalization",
    MICROSOFT,
    types="T=real T T T -> 4",
    infer=_infer_skip,
    rows=functools.partial(_skip_rows, False),
    examples=[
        case("f32[2,3,4]", "f32[2,3,4]", "f32[4]"),
        case("f32[3,4]", "f32[3,4]", "f32[4]", "f32[4]", epsilon=0.1),
    ],
)
def skip_simplified_layer_normalization(
    x: Term, skip: Term, gamma: Term, bias: Term | None = None, *, epsilon: float = 1e-12
) -> tuple[Term, ...]:
    """RMSNormalization of ``x + skip + bias``; mean (of zeros), reciprocal root, and the sum."""
    total = _summed(x, skip, bias)
    y, inverse = total.calls("SimplifiedLayerNormalization", gamma, outputs=2, axis=-1, epsilon=epsilon)
    return y, inverse.filled(0), inverse, total


@composed(
    "SkipLayerNormalization",
    MICROSOFT,
    types="T=real T T T T -> 4",
    infer=_infer_skip,
    rows=functools.partial(_skip_rows, True),
    examples=[
        case("f32[2,3,4]", "f32[2,3,4]", "f32[4]", "f32[4]"),
        case("f32[2,3,4]", "f32[3,4]", "f32[4]", None, "f32[4]", epsilon=0.1),
        case("f32[2,3,4]", "f32[1,3,4]", "f32[4]"),
    ],
)
def skip_layer_normalization(
    x: Term, skip: Term, gamma: Term, beta: Term | None = None, bias: Term | None = None, *, epsilon: float = 1e-12
) -> tuple[Term, ...]:
    """LayerNormalization of ``x + skip + bias``; mean, reciprocal deviation, and the sum."""
    total = _summed(x, skip, bias)
    return (*total.calls("LayerNormalization", gamma, beta, outputs=3, axis=-1, epsilon=epsilon), total)


IDS, SEGMENTS = np.array([[3, 0, 9], [1, 1, 2]], np.int32), np.array([[0, 1, 1], [0, 0, 1]], np.int32)
MASK = np.array([[1, 1, 0], [1, 1, 1]], np.int32)


def _infer_embedding(node: Inference) -> None:
    ids, words = node.shape(0), node.shape(2)
    shape = None if ids is None or words is None else (*ids, words[-1])
    node.set(0, F32 if node.node.op.name[0] == "Q" else node.dtype(2), shape)
    node.set(1, I32, None if ids is None else ids[:1])
    node.set(2, node.dtype(2), shape)


@composed(
    "EmbedLayerNormalization",
    MICROSOFT,
    types="i32 i32 T=f16+f32 T T T T i32 i32 -> 3",
    infer=_infer_embedding,
    examples=[
        case(IDS, SEGMENTS, "f32[10,4]", "f32[5,4]", "f32[2,4]", "f32[4]", "f32[4]", MASK, outputs=2),
        case(
            IDS,
            None,
            "f32[10,4]",
            "f32[5,4]",
            None,
            "f32[4]",
            "f32[4]",
            None,
            np.array([[4, 0, 2]], np.int32),
            outputs=3,
            epsilon=0.1,
        ),
    ],
)
def embed_layer_normalization(
    input_ids: Term,
    segment_ids: Term | None,
    words: Term,
    positions: Term,
    segments: Term | None,
    gamma: Term,
    beta: Term,
    mask: Term | None = None,
    position_ids: Term | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int | None = None,
) -> tuple[Term, Term, Term]:
    """LayerNormalization of word, position and segment embeddings added up [batch, length, size]; words counted by
    `mask`; the sum."""
    tables: list[Table | None] = [
        None if item is None else (item, None, None) for item in (words, positions, segments, gamma, beta)
    ]
    return _embedded(input_ids, segment_ids, tables, mask, position_ids, epsilon)


Table = tuple[Term, Term | None, Term | None]
"""Rows, and for bytes their scale and zero point."""


def _embedded(
    ids: Term,
    segment_ids: Term | None,
    tables: Iterable[Table | None],
    mask: Term | None,
    places: Term | None,
    epsilon: float,
) -> tuple[Term, Term, Term]:
    words, positions, segments, gamma, beta = tables
    assert words is not None
    assert positions is not None
    assert gamma is not None
    total = _rows(words, ids) + _rows(positions, _counted(ids) if places is None else places)
    if segments is not None and segment_ids is not None:
        total = total + _rows(segments, segment_ids)
    y = total.call("LayerNormalization", _rows(gamma), None if beta is None else _rows(beta), axis=-1, epsilon=epsilon)
    if mask is None:
        return y, ids.length(0).call("ConstantOfShape", value=np.zeros(1, np.int32)), total
    return y, mask.call("Equal", mask.number(1)).cast(I32).call("ReduceSum", ids.integers([1]), keepdims=0), total


def _counted(ids: Term) -> Term:
    """Positions [1, length] from 0 on."""
    last = ids.length(1).call("Squeeze")
    return ids.integers(0).call("Range", last, ids.integers(1)).unsqueezed(0)


def _rows(table: Table, ids: Term | None = None) -> Term:
    """Rows of a table by index, or a whole one, as floats."""
    found, scale, zero = table
    if ids is not None:
        found = found.rows(ids)
    if scale is None:
        return found
    wide = found.cast(F32)
    return (wide if zero is None else wide - zero.cast(F32)) * scale


TABLE_ZEROS = (np.uint8(100), np.uint8(90), np.uint8(80), np.uint8(70), np.uint8(120))


@composed(
    "QEmbedLayerNormalization",
    MICROSOFT,
    types="i32 i32 T=byte T T T T i32 f32 f32 f32 f32 f32 T T T T T -> 2",
    infer=_infer_embedding,
    examples=[
        case(
            IDS,
            SEGMENTS,
            "u8[10,4]",
            "u8[5,4]",
            "u8[2,4]",
            "u8[4]",
            "u8[4]",
            MASK,
            *(np.float32(scale) for scale in (0.1, 0.02, 0.3, 0.04, 0.05)),
            *TABLE_ZEROS,
            outputs=2,
            epsilon=0.1,
        ),
        case(
            IDS,
            None,
            "i8[10,4]",
            "i8[5,4]",
            None,
            "i8[4]",
            "i8[4]",
            None,
            np.float32(0.1),
            np.float32(0.2),
            None,
            np.float32(0.3),
            np.float32(0.04),
            np.int8(3),
            np.int8(-4),
            None,
            np.int8(5),
            np.int8(6),
            outputs=2,
        ),
    ],
)
def quantized_embed_layer_normalization(*inputs: Term | None, epsilon: float = 1e-12) -> tuple[Term, Term]:
    """EmbedLayerNormalization whose tables are bytes: tables at inputs 2 to 6, their scales at 8 to 12, zero points at
    13 to 17."""
    given: list[Term | None] = [*inputs, *[None] * (18 - len(inputs))]
    ids = given[0]
    assert ids is not None
    tables: list[Table | None] = [
        None if table is None or scale is None else (table, scale, zero)
        for table, scale, zero in zip(given[2:7], given[8:13], given[13:18], strict=True)
    ]
    return _embedded(ids, given[1], tables, given[7], None, epsilon)[:2]


@composed(
    "GatedRMSNorm",
    MICROSOFT,
    types="T=real T T",
    infer=same_as_input,
    examples=[
        case("f32[2,3,8]", "f32[4]", "f32[2,3,8]"),
        case("f32[2,8]", "f32[8]", "f32[2,8]", activation="sigmoid", epsilon=0.1),
    ],
)
def gated_rms_norm(x: Term, scale: Term, gate: Term, *, activation: str = "silu", epsilon: float = 1e-5) -> Term:
    """RMSNormalization of each run of ``len(scale)`` elements, times the activated gate."""
    size, shape = math.prod(scale.lengths), x.value.shape
    if (
        activation not in ("silu", "swish", "sigmoid")
        or gate.value.shape != shape
        or not size
        or not shape
        or not isinstance(shape[-1], int)
        or shape[-1] % size
    ):
        why = f"{activation!r} of a gate {gate.value.shape}, an input {shape}, a scale of {size}"
        raise shape_error("GatedRMSNorm", why)
    runs = x.reshaped(*[0] * (x.axes - 1), -1, size)
    y = runs.call("RMSNormalization", scale.reshaped(-1), axis=-1, epsilon=epsilon).like(x)
    opened = gate.call("Sigmoid")
    return y * (opened if activation == "sigmoid" else gate * opened)
