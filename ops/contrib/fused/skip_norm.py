"""Fused normalizations: with a residual, with embedding lookups, with a gate."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.base.errors import FormatError
from ....runtime.ir.op import case, op
from ....runtime.ir.shape_inference import CHECK, Inference
from ....runtime.tensor.dtype import BY_ONNX, F32, I32
from ...elementwise.exponential_activation import sigmoid_of
from ...norm.layer_norm import first_axis, layer_normalization, rms_normalized
from ...rules.contrib_domain import DOMAIN
from ...rules.precision import widened
from ...rules.shape_rules import same_as_input


def normalized(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray | None, epsilon: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """LayerNormalization over the last axis, the mean and the reciprocal deviation."""
    assert layer_normalization.compute is not None
    made: tuple[np.ndarray, np.ndarray, np.ndarray] = layer_normalization.compute(
        x, scale, bias, axis=-1, epsilon=epsilon
    )
    return made


def _infer_simplified(node: Inference) -> None:
    x = node.shape(0)
    first = None if x is None else first_axis(node.attributes["axis"], len(x), "SimplifiedLayerNormalization")
    node.set(0, node.dtype(1), x)
    node.set(
        1,
        BY_ONNX.get(node.attributes["stash_type"], F32),
        None if x is None or first is None else (*x[:first], *(1,) * (len(x) - first)),
    )


@op(
    "SimplifiedLayerNormalization",
    infer=_infer_simplified,
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
    node.set(0, node.dtype(0), x)
    for index in (1, 2):
        node.set(index, F32, None if x is None else (*x[:-1], 1))
    node.set(3, node.dtype(0), x)


def _summed(x: np.ndarray, *others: np.ndarray | None) -> np.ndarray:
    total = x
    for other in others:
        if other is not None:
            if np.broadcast_shapes(x.shape, other.shape) != x.shape:
                raise FormatError(
                    "E-OP-SHAPE", None, f"a residual of shape {other.shape} does not fit {x.shape}", hint=CHECK
                )
            total = total + other
    return total


@op(
    "SkipSimplifiedLayerNormalization",
    DOMAIN,
    infer=_infer_skip,
    examples=[
        case("f32[2,3,4]", "f32[2,3,4]", "f32[4]"),
        case("f32[3,4]", "f32[3,4]", "f32[4]", "f32[4]", epsilon=0.1),
    ],
)
@widened
def skip_simplified_layer_normalization(
    x: np.ndarray, skip: np.ndarray, gamma: np.ndarray, bias: np.ndarray | None = None, *, epsilon: float = 1e-12
) -> tuple[np.ndarray, ...]:
    """RMSNormalization of ``x + skip + bias``; mean (of zeros), reciprocal root, and the sum."""
    total = _summed(x, skip, bias)
    y, inverse = rms_normalized(total, gamma, epsilon)
    return y, np.zeros_like(inverse), inverse, total


@op(
    "SkipLayerNormalization",
    DOMAIN,
    infer=_infer_skip,
    examples=[
        case("f32[2,3,4]", "f32[2,3,4]", "f32[4]", "f32[4]"),
        case("f32[2,3,4]", "f32[3,4]", "f32[4]", None, "f32[4]", epsilon=0.1),
        case("f32[2,3,4]", "f32[1,3,4]", "f32[4]"),
    ],
)
@widened
def skip_layer_normalization(
    x: np.ndarray,
    skip: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[np.ndarray, ...]:
    """LayerNormalization of ``x + skip + bias``; mean, reciprocal deviation, and the sum."""
    total = _summed(x, skip, bias)
    return (*normalized(total, gamma, beta, epsilon), total)


IDS, SEGMENTS = np.array([[3, 0, 9], [1, 1, 2]], np.int32), np.array([[0, 1, 1], [0, 0, 1]], np.int32)
MASK = np.array([[1, 1, 0], [1, 1, 1]], np.int32)


def _infer_embedding(node: Inference) -> None:
    ids, words = node.shape(0), node.shape(2)
    shape = None if ids is None or words is None else (*ids, words[-1])
    node.set(0, F32 if node.node.op.name[0] == "Q" else node.dtype(2), shape)
    node.set(1, I32, None if ids is None else ids[:1])
    node.set(2, node.dtype(2), shape)


@op(
    "EmbedLayerNormalization",
    DOMAIN,
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
@widened
def embed_layer_normalization(
    input_ids: np.ndarray,
    segment_ids: np.ndarray | None,
    words: np.ndarray,
    positions: np.ndarray,
    segments: np.ndarray | None,
    gamma: np.ndarray,
    beta: np.ndarray,
    mask: np.ndarray | None = None,
    position_ids: np.ndarray | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """LayerNormalization of word, position and segment embeddings added up [batch, length, size]; words counted by
    `mask`; the sum."""
    places = np.arange(input_ids.shape[1]) if position_ids is None else position_ids
    total = looked_up(words, input_ids) + looked_up(positions, np.broadcast_to(places, input_ids.shape))
    if segments is not None and segment_ids is not None:
        total = total + looked_up(segments, segment_ids)
    counted = np.zeros(len(input_ids), np.int32) if mask is None else (mask == 1).sum(1).astype(np.int32)
    return normalized(total, gamma, beta, epsilon)[0], counted, total


def looked_up(table: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows of a table; FormatError if absent."""
    if rows.size and not (rows.min() >= 0 and rows.max() < len(table)):
        raise FormatError(
            "E-OP-VALUE", None, f"rows {rows.min()} to {rows.max()} of an embedding that has {len(table)}", hint=CHECK
        )
    return table[rows]


TABLE_ZEROS = (np.uint8(100), np.uint8(90), np.uint8(80), np.uint8(70), np.uint8(120))


@op(
    "QEmbedLayerNormalization",
    DOMAIN,
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
def quantized_embed_layer_normalization(*inputs: np.ndarray | None, epsilon: float = 1e-12) -> tuple[np.ndarray, ...]:
    """EmbedLayerNormalization whose tables are bytes: tables at inputs 2 to 6, their scales at 8 to 12, zero points at
    13 to 17."""
    given: list[np.ndarray | None] = [*inputs, *[None] * (18 - len(inputs))]
    ids, segment_ids, rest = given[0], given[1], given[2:]
    tables: list[Any] = [
        _real(table, scale, zero) for table, scale, zero in zip(rest[:5], rest[6:11], rest[11:16], strict=True)
    ]
    assert embed_layer_normalization.compute is not None
    made: tuple[np.ndarray, ...] = embed_layer_normalization.compute(
        ids, segment_ids, *tables, rest[5], epsilon=epsilon
    )
    return made[:2]


def _real(table: np.ndarray | None, scale: np.ndarray | None, zero: np.ndarray | None) -> np.ndarray | None:
    if table is None or scale is None:
        return None
    wide: np.ndarray = table.astype(np.float32)
    return (wide if zero is None else wide - zero.astype(np.float32)) * scale


@op(
    "GatedRMSNorm",
    DOMAIN,
    infer=same_as_input,
    examples=[
        case("f32[2,3,8]", "f32[4]", "f32[2,3,8]"),
        case("f32[2,8]", "f32[8]", "f32[2,8]", activation="sigmoid", epsilon=0.1),
    ],
)
@widened
def gated_rms_norm(
    x: np.ndarray, scale: np.ndarray, gate: np.ndarray, *, activation: str = "silu", epsilon: float = 1e-5
) -> np.ndarray:
    """RMSNormalization of each run of ``len(scale)`` elements, times the activated gate."""
    if (
        activation not in ("silu", "swish", "sigmoid")
        or gate.shape != x.shape
        or not scale.size
        or x.shape[-1] % scale.size
    ):
        why = (
            f"GatedRMSNorm: {activation!r} of a gate of shape {gate.shape}, an input of shape {x.shape}, "
            f"a scale of {scale.size}"
        )
        raise FormatError("E-OP-SHAPE", None, why, hint=CHECK)
    y, _ = rms_normalized(x.reshape(*x.shape[:-1], -1, scale.size), scale.reshape(-1), epsilon)
    opened = sigmoid_of(gate) if activation == "sigmoid" else gate * sigmoid_of(gate)
    return y.reshape(x.shape) * opened
