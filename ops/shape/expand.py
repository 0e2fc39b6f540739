"""Expand and Tile: repeated elements."""

from __future__ import annotations

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Dim, Node
from ...runtime.ir.op import Trait, case, op, upgrade
from ...runtime.ir.shape_inference import Inference
from ..rules.axes import elements, input_error
from ..rules.output_limit import allowed
from ..rules.shape_rules import broadcast


def infer_expand(node: Inference) -> None:
    """The shape that the input's and the one asked for broadcast to."""
    shape, asked = node.shape(0), elements(node, 1)
    if asked is not None and shape is not None:
        pairs = zip(reversed(shape), reversed(asked), strict=False)
        if any(
            isinstance(one, int) and isinstance(other, int) and one != other and 1 not in (one, other)
            for one, other in pairs
        ):
            node.fail(f"{list(shape)} does not broadcast to {list(asked)}")
    result = broadcast(shape, asked)
    known = node.data(0)
    repeated = (
        known is not None
        and len(known) == 1
        and result is not None
        and len(result) <= 1
        and (not result or isinstance(result[0], int))
    )
    count = result[0] if result else 1
    data = known * count if repeated and known is not None and isinstance(count, int) and count <= 64 else None
    node.set(0, node.dtype(0), result, data=data)


@op(
    "Expand",
    since=13,
    types="tensor i64",
    traits=(Trait.MOVES,),
    infer=infer_expand,
    examples=[
        case("f32[3,1]", np.array([2, 1, 4])),
        case("f32[3,1]", np.array([1])),
        case("f32[]", np.array([2, 3])),
        case("f32[1,3]", np.array([0, 1])),
        case("string[2,1]", np.array([2, 2])),
    ],
)
def expand(x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """`x` broadcast with a tensor of that shape; lengths of one in `shape` keep those of `x`."""
    asked = [int(length) for length in shape.reshape(-1)]
    rank = max(x.ndim, len(asked))
    own, wanted = [1] * (rank - x.ndim) + list(x.shape), [1] * (rank - len(asked)) + asked
    if any(a != b and 1 not in (a, b) for a, b in zip(own, wanted, strict=True)) or any(length < 0 for length in asked):
        raise input_error("Expand", "the shapes do not broadcast", expected=list(x.shape), found=asked)
    result = allowed([b if a == 1 else a for a, b in zip(own, wanted, strict=True)], x.dtype.itemsize, "Expand")
    return np.broadcast_to(x, result).copy()


def infer_tile(node: Inference) -> None:
    """Each length times its repeats."""
    shape, repeats = node.shape(0), elements(node, 1)
    if shape is None:
        node.set(0, node.dtype(0), None if repeats is None else [None] * len(repeats))
        return
    repeats = (None,) * len(shape) if repeats is None else repeats
    if len(repeats) != len(shape):
        node.fail(f"{counted(len(repeats), 'repeat')} for {counted(len(shape), 'dim')}")
    node.set(0, node.dtype(0), [_times(length, times) for length, times in zip(shape, repeats, strict=True)])


def _times(length: Dim, times: Dim) -> Dim:
    if isinstance(length, int) and isinstance(times, int):
        return length * times
    return length if times == 1 else times if length == 1 else None


@op(
    "Tile",
    since=13,
    types="tensor i64",
    traits=(Trait.MOVES,),
    infer=infer_tile,
    examples=[
        case("f32[2,3]", np.array([2, 1])),
        case("i64[3]", np.array([3])),
        case("f32[2,3]", np.array([0, 2])),
        case("string[2]", np.array([2])),
    ],
)
def tile(x: np.ndarray, repeats: np.ndarray) -> np.ndarray:
    """`x` that many times along each axis."""
    times = [int(item) for item in repeats.reshape(-1)]
    if len(times) != x.ndim or any(item < 0 for item in times):
        raise input_error("Tile", "repeats do not fit the input", expected=f"{x.ndim} numbers", found=times)
    allowed([length * item for length, item in zip(x.shape, times, strict=True)], x.dtype.itemsize, "Tile")
    return np.tile(x, times)


@upgrade(tile, below=6)
def along_one_axis(node: Node, build: Builder) -> None:
    """Before opset 6 there was one number of tiles, for one axis."""
    if len(node.inputs) < 3:
        return
    x, tiles, axis = node.inputs
    numbers = [
        build.add("Reshape", [build.add("Cast", [item], {"to": 7}), build.constant([1])]) for item in (tiles, axis)
    ]
    ones = build.add(
        "ConstantOfShape", [build.add("Shape", [build.add("Shape", [x])])], {"value": np.array([1], np.int64)}
    )
    node.inputs = [x, build.add("ScatterElements", [ones, numbers[1], numbers[0]])]
    build.keep(node)
