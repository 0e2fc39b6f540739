"""BlockAttention: attention over keys and values that a cache stores as Q8_0 blocks, and QuantizeBlocks, which makes
them.

Source: ggml's type Q8_0, as llama.cpp's ``--cache-type-k q8_0``.
"""

from __future__ import annotations

import numpy as np

from ....runtime.ir.domain import CANDLE
from ....runtime.ir.graph import Dim
from ....runtime.ir.op import Tolerance, case, op
from ....runtime.ir.shape_inference import Inference
from ....runtime.tensor.dtype import U8
from ...elementwise.declare import quiet
from ...rules.shape_rules import shape_error
from ..attention import checked
from ..scaled_dot_product import KeyVisibility, Scoring, attend

LENGTH, NBYTES = 32, 34
"""Elements of a block and its bytes: an f16 scale and signed bytes."""


def stored_nbytes(size: Dim) -> Dim:
    """Bytes of a row of `size` elements."""
    return size // LENGTH * NBYTES if isinstance(size, int) else None


def dequantized(blocks: np.ndarray) -> np.ndarray:
    """f32 [..., elements] of u8 [..., bytes]."""
    if not blocks.ndim or blocks.dtype != np.uint8 or blocks.shape[-1] % NBYTES:
        raise shape_error("BlockAttention", f"{blocks.dtype} {blocks.shape} is not rows of blocks of {NBYTES} bytes")
    parts = np.ascontiguousarray(blocks).reshape(*blocks.shape[:-1], -1, NBYTES)
    scales = np.ascontiguousarray(parts[..., :2]).view(np.float16).astype(np.float32)
    made: np.ndarray = parts[..., 2:].view(np.int8).astype(np.float32) * scales
    return made.reshape(*blocks.shape[:-1], -1)


def _infer_blocks(node: Inference) -> None:
    x = node.shape(0)
    if x is not None and x and isinstance(x[-1], int) and x[-1] % LENGTH:
        node.fail(f"rows have {x[-1]} elements, not a multiple of {LENGTH}")
    node.set(0, U8, None if not x else (*x[:-1], stored_nbytes(x[-1])))


def quantized(x: np.ndarray) -> np.ndarray:
    """u8 [..., bytes] of f32 [..., elements]."""
    if not x.ndim or x.shape[-1] % LENGTH:
        raise shape_error("QuantizeBlocks", f"rows of shape {x.shape} are not whole blocks of {LENGTH} elements")
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], -1, LENGTH)
    scale = np.abs(blocks).max(-1, keepdims=True, initial=0) / np.float32(127)
    ratio = blocks * np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    codes = np.copysign(np.trunc(np.abs(ratio) + np.float32(0.5)), ratio)
    scale += (blocks * np.float32(0)).sum(-1, keepdims=True)
    codes = np.where(np.isnan(scale), 0, codes).astype(np.int8)
    made = np.concatenate((scale.astype(np.float16).view(np.uint8), codes.view(np.uint8)), axis=-1)
    return made.reshape(*x.shape[:-1], x.shape[-1] // LENGTH * NBYTES)


@op(
    "QuantizeBlocks", CANDLE, infer=_infer_blocks, tolerance=Tolerance(0, 0),
    examples=[case("f32[2,3,64]"), case("f32[5,32]"), case("f32[1,2,7,96]")],
)  # fmt: skip
@quiet
def quantize_blocks(x: np.ndarray) -> np.ndarray:
    """Rows of f32 as Q8_0 blocks, u8 [..., bytes of a row]. A block with numbers that are not finite becomes NaN."""
    return quantized(x)


def _infer(node: Inference) -> None:
    q, v = node.shape(0), node.shape(2)
    known = q is not None and v is not None and len(q) == len(v) == 4
    width = v[3] // NBYTES * LENGTH if known and v is not None and isinstance(v[3], int) else None
    node.set(0, node.dtype(0), (*q[:3], width) if known and q is not None else None)


def _stored(*shape: int) -> np.ndarray:
    return quantized(np.random.default_rng(shape[2]).normal(size=shape).astype(np.float32))


@op(
    "BlockAttention", CANDLE, infer=_infer, tolerance=Tolerance(1e-5, 1e-5),
    examples=[
        case("f32[2,4,1,64]", _stored(2, 2, 50, 64), _stored(2, 2, 50, 32), "bool[2,1,1,50]"),
        case("f32[1,2,9,32]", _stored(1, 1, 40, 32), _stored(1, 1, 40, 96), "bool[1,1,9,40]", scale=0.3),
        case("f32[1,3,3,96]", _stored(1, 3, 7, 96), _stored(1, 3, 7, 64), "f32[3,7]", softcap=2.0),
        case("f32[1,2,5,32]", _stored(1, 2, 300, 32), _stored(1, 2, 300, 32)),
    ],
)  # fmt: skip
@quiet
def block_attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None = None,
    *,
    scale: float | None = None,
    softcap: float = 0.0,
) -> np.ndarray:
    """[batch, heads, queries, value size] from queries f32 [batch, heads, queries, size].

    Args:
        k, v: u8 [batch, key heads, keys, bytes of a row].
        mask: booleans, of which False hides a key, or numbers that are added to scores; they broadcast to [batch,
            heads, queries, keys].
    """
    keys, values = dequantized(k), dequantized(v)
    checked(q, keys, values, "BlockAttention")
    scoring = Scoring(scale if scale is not None else 1 / max(q.shape[3], 1) ** 0.5, softcap)
    y, _ = attend(q, keys, values, scoring, KeyVisibility(np.array([0]), False, -1, -1, None), mask, None)
    return y.astype(q.dtype, copy=False)
