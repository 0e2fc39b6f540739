"""Rotary embedding: pairs of elements rotated by an angle proportional to the position (Su et al. 2021,
arXiv:2104.09864)."""

from __future__ import annotations

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import Inference
from ..elementwise.declare import quiet
from ..rules.expression import lowered
from ..rules.precision import widened
from ..rules.shape_rules import shape_error
from .decomposition import rotary_of_terms


def _infer(node: Inference) -> None:
    x = node.shape(0)
    if x is not None and len(x) not in (3, 4):
        node.fail(f"the input has shape {x}; it is of rank 3 or 4")
    if x is not None and len(x) == 3 and not node.attributes["num_heads"]:
        node.fail("an input of rank 3 needs num_heads")
    ids = node.shape(3)
    if ids is not None and len(ids) != 2:
        node.fail(f"position_ids have shape {ids}; they are of rank 2")
    node.set(0, node.dtype(0), x)


@op(
    "RotaryEmbedding",
    since=23,
    types="T=real T T i64",
    traits=(Trait.PRODUCT,),
    infer=_infer,
    lower=lowered(rotary_of_terms),
    examples=[
        case("f32[2,3,4,8]", "f32[10,4]", "f32[10,4]", np.array([[0, 3, 5, 1], [9, 2, 2, 7]])),
        case("f32[2,4,24]", "f32[2,4,2]", "f32[2,4,2]", num_heads=3, rotary_embedding_dim=4),
        case("f32[1,2,3,6]", "f32[5,2]", "f32[5,2]", np.array([[4, 0, 1]]), interleaved=1, rotary_embedding_dim=4),
        case("f32[0,2,3,6]", "f32[0,3,3]", "f32[0,3,3]"),
    ],
)
@quiet
@widened
def rotary_embedding(
    x: np.ndarray,
    cos_cache: np.ndarray,
    sin_cache: np.ndarray,
    position_ids: np.ndarray | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> np.ndarray:
    """Shape of `x`, [batch, heads, length, size] or [batch, length, heads x size].

    The first `rotary_embedding_dim` elements of each head are rotated (all if it is 0): element i with i + half, or
    with its neighbour where `interleaved`. Caches are [positions, half], or [batch, length, half] where there are no
    positions.
    """
    if x.ndim not in (3, 4) or (x.ndim == 3 and (num_heads < 1 or x.shape[2] % num_heads)):
        raise shape_error("RotaryEmbedding", f"an input of shape {x.shape} does not split into {num_heads} heads")
    heads = x.transpose(0, 2, 1, 3) if x.ndim == 4 else x.reshape(*x.shape[:2], num_heads, x.shape[2] // num_heads)
    size = rotary_embedding_dim or heads.shape[3]
    if position_ids is not None:
        if position_ids.size and not (position_ids.min() >= 0 and position_ids.max() < len(cos_cache)):
            reach = f"{position_ids.min()} to {position_ids.max()}"
            raise shape_error(
                "RotaryEmbedding",
                f"position_ids reach from {reach}, the caches hold {counted(len(cos_cache), 'position')}",
            )
        cos_cache, sin_cache = cos_cache[position_ids], sin_cache[position_ids]
    if (
        size % 2
        or size > heads.shape[3]
        or cos_cache.shape != sin_cache.shape
        or cos_cache.shape[-1] != size // 2
        or cos_cache.ndim != 3
    ):
        raise shape_error(
            "RotaryEmbedding",
            f"caches of shapes {cos_cache.shape} and {sin_cache.shape} do not turn {size} of {heads.shape[3]} elements",
        )
    cos, sin = cos_cache[:, :, None], sin_cache[:, :, None]
    one, two = (slice(0, size, 2), slice(1, size, 2)) if interleaved else (slice(0, size // 2), slice(size // 2, size))
    y = np.array(heads)
    y[..., one] = cos * heads[..., one] - sin * heads[..., two]
    y[..., two] = sin * heads[..., one] + cos * heads[..., two]
    return np.ascontiguousarray(y.transpose(0, 2, 1, 3)) if x.ndim == 4 else y.reshape(x.shape)
