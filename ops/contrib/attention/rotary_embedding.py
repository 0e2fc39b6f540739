"""onnxruntime's RotaryEmbedding, and MRotaryEmbedding with three positions per image token (Qwen2-VL)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ....runtime.ir.domain import MICROSOFT
from ....runtime.ir.op import case
from ...attention.rotary_embedding import rotary_embedding as standard
from ...rules.decomposition import composed
from ...rules.expression import Term
from ...rules.shape_rules import same_as_input, shape_error


def rotate(
    x: np.ndarray, cos: np.ndarray, sin: np.ndarray, positions: np.ndarray | None, interleaved: int
) -> np.ndarray:
    """[batch, heads, length, size] rotated; the caches have half as many columns as elements are rotated."""
    assert standard.compute is not None
    made: np.ndarray = standard.compute(
        x, cos, sin, positions, interleaved=interleaved, rotary_embedding_dim=2 * cos.shape[-1]
    )
    return made


def rotate_by_position(
    parts: Iterable[np.ndarray],
    cos: np.ndarray | None,
    sin: np.ndarray | None,
    positions: np.ndarray,
    interleaved: int,
    what: str,
) -> list[np.ndarray]:
    """Queries and keys [batch, heads, length, size] rotated by positions [batch, length]."""
    if cos is None or sin is None:
        raise shape_error(what, "do_rotary needs cos_cache and sin_cache")
    return [rotate(part, cos, sin, positions, interleaved) for part in parts]


def split(x: np.ndarray, heads: int, size: int, what: str) -> np.ndarray:
    """[batch, length, heads x size] as [batch, heads, length, size]; either count may be 0 for what the other
    leaves."""
    heads = heads or x.shape[-1] // max(size, 1)
    if x.ndim != 3 or heads < 1 or x.shape[-1] % heads:
        raise shape_error(what, f"an input of shape {x.shape} does not split into {heads} heads")
    return x.reshape(*x.shape[:2], heads, x.shape[-1] // heads).transpose(0, 2, 1, 3)


def joined(x: np.ndarray) -> np.ndarray:
    """[batch, heads, length, size] as [batch, length, heads x size]."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])


@composed(
    "RotaryEmbedding",
    MICROSOFT,
    types="T=real i64 T T",
    infer=same_as_input,
    examples=[
        case("f32[2,3,16]", np.array([[0, 3, 5], [9, 2, 7]]), "f32[10,4]", "f32[10,4]"),
        case(
            "f32[2,3,16]", np.array([4]), "f32[10,2]", "f32[10,2]", num_heads=2, rotary_embedding_dim=4, interleaved=1
        ),
        case("f32[2,4,3,8]", np.array([[0, 3, 5], [9, 2, 7]]), "f32[10,4]", "f32[10,4]"),
    ],
)
def rotary_embedding(
    x: Term,
    position_ids: Term,
    cos_cache: Term,
    sin_cache: Term,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Term:
    """Shape of `x`, [batch, length, heads x size] or [batch, heads, length, size]; one position stands for the first of
    each row."""
    half, shape = cos_cache.lengths[1], x.lengths
    tokens = [shape[0], shape[-2 if len(shape) == 4 else 1]]
    if math.prod(position_ids.lengths) == 1 and position_ids.axes < 2:
        positions = (position_ids + x.integers(list(range(tokens[1])))).call("Expand", x.integers(tokens))
    elif math.prod(position_ids.lengths) == math.prod(tokens):
        positions = position_ids.reshaped(*tokens)
    else:
        why = f"positions of shape {position_ids.value.shape} for {tokens[0]} x {tokens[1]} tokens"
        raise shape_error("RotaryEmbedding", why)
    heads = 0 if len(shape) == 4 else num_heads or shape[2] // max(2 * half, 1)
    return x.call(
        "RotaryEmbedding",
        cos_cache,
        sin_cache,
        positions,
        interleaved=interleaved,
        num_heads=heads,
        rotary_embedding_dim=2 * half,
    )


@composed(
    "MRotaryEmbedding",
    MICROSOFT,
    types="T=real i64 T T",
    infer=same_as_input,
    examples=[
        case(
            "f32[2,2,16]",
            np.array([[[0, 3], [9, 2]], [[1, 1], [2, 4]], [[5, 6], [7, 8]]]),
            "f32[10,4]",
            "f32[10,4]",
            mrope_section=[2, 1, 1],
        ),
        case(
            "f32[1,2,24]",
            np.array([[[0, 3]], [[1, 1]], [[5, 6]]]),
            "f32[10,6]",
            "f32[10,6]",
            mrope_section=[2, 2, 2],
            mrope_layout=1,
        ),
    ],
)
def multimodal_rotary_embedding(
    x: Term,
    position_ids: Term,
    cos_cache: Term,
    sin_cache: Term,
    *,
    mrope_section: list[int],
    interleaved: int = 0,
    is_packed_batching: int = 0,
    mrope_layout: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Term:
    """As RotaryEmbedding, with positions [3, batch, length] in time, height and width.

    Sections of the angles follow one position each: one after another (layout 0), or in turn, time where the others end
    (layout 1).
    """
    half = cos_cache.lengths[1]
    if position_ids.axes != 3 or len(mrope_section) != 3 or sum(mrope_section) != half or min(mrope_section) < 0:
        what = f"positions {position_ids.value.shape}, sections {mrope_section} and caches {cos_cache.value.shape}"
        raise shape_error("MRotaryEmbedding", f"{what} do not fit {x.value.shape}")
    stream = np.repeat(np.arange(3), mrope_section)
    if mrope_layout:
        stream = np.zeros(half, np.int64)
        for axis in (1, 2):
            stream[axis : 3 * mrope_section[axis] : 3] = axis
    one, two = (x.constant(stream == axis, "bool") for axis in (0, 1))
    angles = []
    for cache in (cos_cache, sin_cache):
        rows = cache.rows(position_ids)
        time, height, width = (rows.entry(0, axis) for axis in range(3))
        angles.append(one.where(time, two.where(height, width)))
    heads = 0 if x.axes == 4 else num_heads or x.lengths[2] // (2 * half)
    return x.call("RotaryEmbedding", *angles, interleaved=interleaved, num_heads=heads, rotary_embedding_dim=2 * half)
