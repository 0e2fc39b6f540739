"""Putting together and taking apart along one axis: Concat, Split, Tile, Expand."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.build import Builder
from ...runtime.errors import UsageError
from ...runtime.graph import Dim, Node
from ...runtime.infer import Inference
from ...runtime.op import Call, case, op, upgrade
from ..allocation import allowed
from ..rules import axis_of, broadcast

CHECK = "Check the shapes fed to the model"


def _concat(node: Inference) -> None:
    shapes = [node.shape(index) for index in range(len(node))]
    first = next((shape for shape in shapes if shape is not None), None)
    if first is None:
        node.set(0, node.dtype(0), None)
        return
    axis = axis_of(node, "axis", len(first))
    dims: list[Dim] = list(first)
    for shape in shapes:
        if shape is None:
            continue
        if len(shape) != len(first):
            node.refuse("its inputs differ in rank")
        for place, dim in enumerate(shape):
            if place != axis and isinstance(dim, int):
                if isinstance(dims[place], int) and dims[place] != dim:
                    node.refuse(f"its inputs differ in dimension {place}: {dims[place]} and {dim}")
                dims[place] = dim
    lengths = [None if shape is None else shape[axis] for shape in shapes]
    known = [length for length in lengths if isinstance(length, int)]
    rest = [length for length in lengths if not isinstance(length, int)]
    dims[axis] = sum(known) if not rest else rest[0] if len(rest) == 1 and not sum(known) and None not in shapes else None
    data = [node.data(index) for index in range(len(node))]
    joined = [item for part in data if part is not None for item in part] if len(first) == 1 and None not in data else None
    node.set(0, node.dtype(0), dims, data=joined)


@op(
    "Concat", since=13, infer=_concat,
    examples=[case("f32[2,3]", "f32[2,1]", axis=1), case("i64[2]", "i64[0]", "i64[3]", axis=-1), case("f32[2,3]", axis=0)],
)
def concat(*inputs: np.ndarray, axis: int) -> np.ndarray:
    """Arrays one after another along `axis`."""
    try:
        return np.concatenate(inputs, axis=axis)
    except ValueError as error:
        shapes = ", ".join(str(list(item.shape)) for item in inputs)
        raise UsageError("E-OP-CONCAT", None, f"{shapes} cannot be put together along axis {axis}", hint=CHECK) from error


@upgrade(concat, below=4)
def axis_had_a_default(node: Node, build: Builder) -> None:
    """Before opset 4 the axis was 1 where it was not given."""
    node.attributes.setdefault("axis", 1)


def _split(node: Inference) -> None:
    shape, count = node.shape(0), len(node.node.outputs)
    if shape is None:
        for index in range(count):
            node.set(index, node.dtype(0), None)
        return
    axis = axis_of(node, "axis", len(shape))
    lengths: list[Dim] = [None] * count
    given, length = node.data(1), shape[axis]
    if node.value(1) is not None:
        lengths = list(given) if given is not None else lengths
        if len(lengths) != count:
            node.refuse(f"{len(lengths)} lengths for {count} outputs")
    elif isinstance(length, int):
        lengths = list(_even(length, count))
    data = node.data(0) if len(shape) == 1 else None
    start = 0
    for index, part in enumerate(lengths):
        dims = [part if place == axis else dim for place, dim in enumerate(shape)]
        piece = data[start : start + part] if data is not None and isinstance(part, int) and start >= 0 else None
        start = start + part if isinstance(part, int) and start >= 0 else -1
        node.set(index, node.dtype(0), dims, data=piece)


def _even(length: int, count: int) -> list[int]:
    each = -(-length // count)
    return [max(0, min(each, length - each * index)) for index in range(count)]


@op(
    "Split", since=18, infer=_split,
    examples=[
        case("f32[6,2]", outputs=2, num_outputs=2), case("f32[2,7]", outputs=3, axis=1, num_outputs=3),
        case("f32[2,6]", [2, 4], outputs=2, axis=-1),
    ],
)
def split(x: np.ndarray, lengths: np.ndarray | None = None, *, axis: int = 0, num_outputs: int | None = None, call: Call) -> tuple[np.ndarray, ...]:
    """Parts along `axis` of the given lengths, or as many equal ones as there are outputs, the last one shorter."""
    parts = _even(x.shape[axis], num_outputs or len(call.wanted)) if lengths is None else [int(length) for length in lengths]
    if sum(parts) != x.shape[axis] or min(parts, default=0) < 0:
        raise UsageError("E-OP-SPLIT", None, f"lengths {parts} do not add up to {x.shape[axis]}, the length of axis {axis}", hint=CHECK)
    return tuple(np.split(x, np.cumsum(parts)[:-1], axis=axis)) if len(parts) > 1 else (x,)


@upgrade(split, below=13)
def lengths_were_an_attribute(node: Node, build: Builder) -> None:
    """Before opset 13 the lengths were an attribute."""
    if "split" in node.attributes:
        node.inputs[1:] = [build.constant(node.attributes.pop("split"))]


@upgrade(split, below=18)
def outputs_were_counted(node: Node, build: Builder) -> None:
    """Before opset 18 the number of outputs was that of the node."""
    if len(node.inputs) < 2 or node.inputs[1] is None:
        node.attributes["num_outputs"] = len(node.outputs)


def _tile(node: Inference) -> None:
    shape, repeats = node.shape(0), node.data(1)
    if shape is None or repeats is None:
        node.set(0, node.dtype(0), None if shape is None else (None,) * len(shape))
        return
    if len(repeats) != len(shape):
        node.refuse(f"{len(repeats)} repeats for a tensor of rank {len(shape)}")
    node.set(0, node.dtype(0), [_times(dim, times) for dim, times in zip(shape, repeats, strict=True)])


def _times(dim: Dim, times: Dim) -> Dim:
    if isinstance(dim, int) and isinstance(times, int):
        return dim * times
    return dim if times == 1 else times if dim == 1 else None


@op("Tile", since=13, infer=_tile, examples=[case("f32[2,3]", [2, 1]), case("i32[2]", [3]), case("f32[2,0]", [2, 3])])
def tile(x: np.ndarray, repeats: np.ndarray) -> np.ndarray:
    """`x` repeated along each dimension."""
    times = [int(item) for item in repeats]
    if len(times) != x.ndim:
        raise UsageError("E-OP-TILE", None, f"{len(times)} repeats for an array of rank {x.ndim}", hint=CHECK)
    allowed([dim * count for dim, count in zip(x.shape, times, strict=True)], x.dtype.itemsize, "Tile")
    return np.tile(x, times)


@upgrade(tile, below=6)
def tiles_and_axis(node: Node, build: Builder) -> None:
    """In opset 1 the repeats were one number, for one axis."""
    x, count, axis = node.inputs
    rank = build.add("Shape", [build.add("Shape", [x])])
    ones = build.add("ConstantOfShape", [rank], {"value": _ONE})
    cast = [build.add("Reshape", [build.add("Cast", [value], {"to": 7}), build.constant([1])]) for value in (axis, count)]
    node.inputs = [x, build.add("ScatterElements", [ones, *cast])]
    build.keep(node)


_ONE = np.array([1], np.int64)


def _expand(node: Inference) -> None:
    wanted = node.data(1)
    shape = broadcast(node.shape(0), wanted)
    if shape is None and wanted is None:
        rank = node.shape(1)
        own = node.shape(0)
        if rank and isinstance(rank[0], int) and own is not None:
            shape = (None,) * max(rank[0], len(own))
    node.set(0, node.dtype(0), shape, data=node.data(0) if shape == node.shape(0) else None)


@op("Expand", since=13, infer=_expand, examples=[case("f32[3,1]", [2, 1, 6]), case("f32[3,4]", [3, 1]), case("f32[1]", [0]), case("i64[2,1]", [1])])
def expand(x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """`x` broadcast together with a shape; dimensions of that shape that are 1 keep the length of `x`."""
    try:
        result = np.broadcast_shapes(x.shape, tuple(int(dim) for dim in shape))
    except ValueError as error:
        raise UsageError("E-OP-EXPAND", None, f"{list(x.shape)} does not broadcast to {shape.tolist()}", hint=CHECK) from error
    allowed(result, x.dtype.itemsize, "Expand")
    return np.ascontiguousarray(np.broadcast_to(x, result)) if math.prod(result) != x.size else x.reshape(result)
