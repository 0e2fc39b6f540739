"""GatherBlockQuantized: lookup and dequantization of rows of a block-quantized table, such as 4-bit embeddings."""

from __future__ import annotations

import numpy as np

from ....runtime.ir.domain import MICROSOFT
from ....runtime.ir.op import Trait, case, op
from ....runtime.ir.shape_inference import Inference
from ....runtime.tensor.dtype import of_numpy
from ...rules.bit_packing import unpacked
from ...rules.output_limit import allowed
from ...rules.shape_rules import shape_error

WHAT = "GatherBlockQuantized"


def _infer(node: Inference) -> None:
    if node.attributes["block_size"] < 1 or not 1 <= node.attributes["bits"] <= 8:
        node.fail(f"blocks of {node.attributes['block_size']} numbers of {node.attributes['bits']} bits")
    data, indices, dtype = node.shape(0), node.shape(1), node.dtype(0)
    if data is None or indices is None or dtype is None:
        node.set(0, node.dtype(2), None)
        return
    axis, bits = node.attributes["gather_axis"] % len(data), node.attributes["bits"]
    shape = list(data)
    last = shape[-1]
    if dtype.name == "u8" and bits < 8 and isinstance(last, int):
        shape[-1] = last * (8 // bits)
    node.set(0, node.dtype(2), (*shape[:axis], *indices, *shape[axis + 1 :]))


@op(
    "GatherBlockQuantized",
    MICROSOFT,
    types="T=f8+nibble+f4+u8 index real T",
    traits=(Trait.MOVES,),
    infer=_infer,
    examples=[
        case("u8[5,32]", np.array([[3, 0], [1, -1]]), "f32[5,2]", block_size=16, quantize_axis=1, bits=8),
        case("u8[5,16]", np.array([3, 0]), "f32[5,2]", "u8[5,1]", block_size=16, quantize_axis=1, bits=4),
        case("i4[6,32]", np.array([3, 0], np.int32), "f32[6,2]", "i4[6,2]", block_size=16),
    ],
)
def gather_block_quantized(
    data: np.ndarray,
    indices: np.ndarray,
    scales: np.ndarray,
    zero_points: np.ndarray | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> np.ndarray:
    """``(data[indices] - zero_points) * scales``, zero for indices that do not exist. Bytes hold 8 / bits elements of
    the last axis each."""
    kind, rank = of_numpy(data.dtype), data.ndim
    if not (-rank <= gather_axis < rank and -rank <= quantize_axis < rank) or scales.ndim != rank:
        raise shape_error(
            WHAT, f"data of shape {data.shape}, scales of shape {scales.shape}, axes {gather_axis} and {quantize_axis}"
        )
    axis, along = gather_axis % rank, quantize_axis % rank
    packed = kind.name == "u8" and bits < 8
    if packed and (bits not in (2, 4) or axis != 0 or axis == along):
        raise shape_error(WHAT, f"data of {bits} bits, looked up along axis {axis}, quantized along {along}")
    chosen = np.where(indices < 0, indices + data.shape[axis], indices)
    missing = (chosen < 0) | (chosen >= data.shape[axis])
    chosen = np.where(missing, 0, chosen)
    if not data.shape[axis] and chosen.size:
        raise shape_error(WHAT, "data has no rows")
    shape = list(data.shape)
    shape[-1] *= 8 // bits if packed else 1
    length, size = shape[along], block_size or shape[along]
    blocks = -(-length // max(size, 1))
    wanted = [*shape[:along], blocks, *shape[along + 1 :]]
    if any(
        have not in (need, 1 if kind.kind == "float" else need) for have, need in zip(scales.shape, wanted, strict=True)
    ):
        raise shape_error(WHAT, f"scales of shape {scales.shape} where {tuple(wanted)} is needed")
    allowed((*shape[:axis], *indices.shape, *shape[axis + 1 :]), 4, WHAT)

    def looked_up(table: np.ndarray) -> np.ndarray:
        found = (
            np.take(table, chosen, axis)
            if table.shape[axis] > 1 or shape[axis] == 1
            else np.take(table, np.zeros_like(chosen), axis)
        )
        return np.asarray(found)

    place = along if along < axis else along + indices.ndim - 1

    def spread(table: np.ndarray) -> np.ndarray:
        found = looked_up(table)
        return np.repeat(found, size, place).take(np.arange(length), place) if axis != along else found

    if axis == along:
        codes = data.astype(np.float32)
        rows = np.arange(length) // size
        real = (codes - _zeros(zero_points, kind.name, bits, packed, wanted).take(rows, along)) * scales.astype(
            np.float32
        ).take(rows, along)
        y = looked_up(real)
    else:
        codes = looked_up(data)
        codes = (unpacked(codes, bits, shape[-1]) if packed else codes).astype(np.float32)
        y = (codes - spread(_zeros(zero_points, kind.name, bits, packed, wanted))) * spread(scales.astype(np.float32))
    if missing.any():
        y = np.where(missing.reshape(*(1,) * axis, *missing.shape, *(1,) * (rank - 1 - axis)), np.float32(0), y)
    return y.astype(scales.dtype)


def _zeros(zero_points: np.ndarray | None, kind: str, bits: int, packed: bool, shape: list[int]) -> np.ndarray:
    """Zero points as f32, one for each block."""
    if zero_points is None:
        return np.full(shape, 1 << (bits - 1) if kind == "u8" else 0, np.float32)
    whole = unpacked(zero_points, bits, shape[-1]) if packed else zero_points
    if whole.shape != tuple(shape):
        raise shape_error(WHAT, f"zero points of shape {zero_points.shape} where {tuple(shape)} are needed")
    return whole.astype(np.float32)
