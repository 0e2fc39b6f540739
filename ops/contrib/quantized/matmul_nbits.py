"""MatMulNBits: product with a weight of 2 to 8 bits that has a scale and a zero point per block."""

from __future__ import annotations

import numpy as np

from ....runtime.base.errors import FormatError
from ....runtime.ir.domain import MICROSOFT
from ....runtime.ir.op import Tolerance, case, op
from ....runtime.ir.shape_inference import CHECK, Inference
from ...rules.bit_packing import row_nbytes, unpacked
from ...rules.output_limit import allowed
from ...rules.precision import widened
from ...rules.shape_rules import shape_error

BLOCK_BYTES = 16 << 20
"""Rows of the weight are dequantized no more than this at a time."""


def last_length(node: Inference, length: int) -> None:
    """Output 0 is input 0 with another last axis."""
    x = node.shape(0)
    if x is not None and not x:
        node.fail("the first input is a scalar")
    node.set(0, node.dtype(0), None if x is None else (*x[:-1], length))


def _infer(node: Inference) -> None:
    x, inner = node.shape(0), node.attributes["K"]
    counts = {name: node.attributes[name] for name in ("K", "N", "block_size", "bits")}
    if min(counts.values()) < 1 or counts["bits"] > 8:
        node.fail(f"{', '.join(f'{name} {count}' for name, count in counts.items())}: not a matrix in blocks")
    if x and isinstance(x[-1], int) and x[-1] != inner:
        node.fail(f"the input has {x[-1]} columns, the weight {inner}")
    last_length(node, node.attributes["N"])


def fits(what: str, name: str, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """`array` in a shape that has as many elements; FormatError for others."""
    if array.size != int(np.prod(shape)):
        raise shape_error(what, f"{name} of shape {array.shape} where {shape} is needed")
    return array.reshape(shape)


@op(
    "MatMulNBits",
    MICROSOFT,
    types="T=real u8 T real+u8 i32 T",
    infer=_infer,
    tolerance=Tolerance(1e-4, 1e-4),
    examples=[
        case("f32[2,3,40]", "u8[5,3,8]", "f32[5,3]", K=40, N=5, block_size=16),
        case("f32[3,32]", "u8[4,1,32]", "f32[4]", "u8[4]", None, "f32[4]", K=32, N=4, bits=8, block_size=32),
        case("f32[3,64]", "u8[4,2,8]", "f32[4,2]", "u8[4,1]", K=64, N=4, bits=2, block_size=32),
        case("f32[3,64]", "u8[4,2,16]", "f32[4,2]", "f32[4,2]", K=64, N=4, block_size=32),
        case("f32[2,32]", "u8[3,2,8]", "f32[3,2]", None, np.arange(32, dtype=np.int32) % 2, K=32, N=3, block_size=16),
        case("f32[2,20]", "u8[3,2,6]", "f32[3,2]", "u8[3,1]", K=20, N=3, bits=3, block_size=16),
        case("f32[5,40]", "u8[5,3,8]", "f32[5,3]", "u8[5,2]", None, "f32[5]", K=40, N=5, block_size=16),
    ],
)
@widened
def matmul_nbits(
    a: np.ndarray,
    b: np.ndarray,
    scales: np.ndarray,
    zero_points: np.ndarray | None = None,
    g_idx: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    K: int,  # noqa: N803
    N: int,  # noqa: N803
    block_size: int,
    bits: int = 4,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> np.ndarray:
    """``a @ W.T + bias`` from [..., K] and W [N, K] in bytes [N, blocks, block bytes].

    `scales` are [N, blocks], `zero_points` the same as numbers, or packed [N, bytes]; 2 ** (bits - 1) if absent.
    `g_idx` gives the block whose scale each column has. `accuracy_level` 4 allows rows of 8 bits, which are not
    made here: the native product does, as onnxruntime.
    """
    blocks = -(-K // block_size)
    if a.shape[-1:] != (K,) or not 1 <= bits <= 8 or weight_prepacked or min(K, N, block_size) < 1:
        why = f"MatMulNBits: an input of shape {a.shape}, {bits} bits, K={K}, weight_prepacked={weight_prepacked}"
        raise FormatError("E-OP-SHAPE", None, why, hint=CHECK)
    weight = fits("MatMulNBits", "the weight", b, (N, blocks, row_nbytes(block_size, bits)))
    scales = fits("MatMulNBits", "scales", scales, (N, blocks))
    zeros = zero_points_of(zero_points, N, blocks, bits, "MatMulNBits")
    order = None if g_idx is None else g_idx.reshape(-1)
    if order is not None and (order.shape != (K,) or order.min() < 0 or order.max() >= blocks):
        raise shape_error(
            "MatMulNBits", f"g_idx does not name one of {blocks} blocks for each of {K} columns", "E-OP-VALUE"
        )
    rows = a.reshape(-1, K)
    y = np.empty(allowed((len(rows), N), a.itemsize, "MatMulNBits"), a.dtype)
    step = max(1, BLOCK_BYTES // (4 * blocks * block_size))
    for start in range(0, N, step):
        part = slice(start, start + step)
        codes = unpacked(weight[part], bits, block_size).astype(np.float32)
        scale, zero = scales[part].astype(np.float32), zeros[part]
        if order is None:
            real = ((codes - zero[..., None]) * scale[..., None]).reshape(len(codes), -1)[:, :K]
        else:
            real = (codes.reshape(len(codes), -1)[:, :K] - zero[:, order]) * scale[:, order]
        np.matmul(rows, real.T.astype(a.dtype, copy=False), out=y[:, part])
    if bias is not None:
        y += bias
    return y.reshape(*a.shape[:-1], N)


def zero_points_of(zero_points: np.ndarray | None, rows: int, blocks: int, bits: int, what: str) -> np.ndarray:
    """Zero points as f32 [rows, blocks]."""
    if zero_points is None:
        return np.full((rows, blocks), 1 << (bits - 1), np.float32)
    if zero_points.dtype != np.uint8:
        return fits(what, "zero_points", zero_points, (rows, blocks)).astype(np.float32)
    return unpacked(fits(what, "zero_points", zero_points, (rows, row_nbytes(blocks, bits))), bits, blocks).astype(
        np.float32
    )
