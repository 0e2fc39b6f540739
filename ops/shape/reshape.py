"""Another shape for the same elements: Reshape, Flatten, Squeeze, Unsqueeze, Identity-like views."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.build import Builder
from ...runtime.errors import UsageError
from ...runtime.graph import Dim, Node
from ...runtime.infer import Inference, Shape
from ...runtime.op import case, op, upgrade
from ..rules import axes_of, axis_of

CHECK = "Check the shapes fed to the model"


def _reshape(node: Inference) -> None:
    wanted, shape = node.data(1), node.shape(0)
    if wanted is None:
        rank = node.shape(1)
        node.set(0, node.dtype(0), (None,) * rank[0] if rank and isinstance(rank[0], int) else None, data=None)
        return
    dims: list[Dim] = list(wanted)
    for index, dim in enumerate(dims):
        if dim == 0 and not node.attributes["allowzero"]:
            dims[index] = shape[index] if shape is not None and index < len(shape) else None
    if dims.count(-1) > 1:
        node.refuse("two lengths are -1")
    if -1 in dims:
        dims[dims.index(-1)] = _rest(shape, dims)
    node.set(0, node.dtype(0), dims, data=node.data(0) if len(dims) <= 1 else None)


def _rest(shape: Shape | None, dims: list[Dim]) -> Dim:
    """The length that -1 stands for: what is left when equal symbols are taken out of both sides."""
    if shape is None:
        return None
    left, right = list(shape), [dim for dim in dims if dim != -1]
    for dim in list(right):
        if isinstance(dim, str) and dim in left:
            left.remove(dim)
            right.remove(dim)
    if not all(isinstance(dim, int) for dim in right):
        return None
    taken = math.prod(dim for dim in right if isinstance(dim, int))
    symbols = [dim for dim in left if not isinstance(dim, int)]
    known = math.prod(dim for dim in left if isinstance(dim, int))
    if not symbols:
        return known // taken if taken else None
    return symbols[0] if len(symbols) == 1 and known == taken and taken else None


@op("Reshape", since=25, infer=_reshape, examples=[case("f32[2,3,4]", [4, -1]), case("f32[2,3,4]", [0, -1]), case("f32[0,3]", [3, 0], allowzero=1)])
def reshape(data: np.ndarray, shape: np.ndarray, *, allowzero: int = 0) -> np.ndarray:
    """The elements in order under another shape: 0 keeps a length (unless `allowzero`), -1 is what is left."""
    dims = [int(dim) for dim in shape]
    if not allowzero:
        dims = [data.shape[index] if dim == 0 and index < data.ndim else dim for index, dim in enumerate(dims)]
    try:
        return data.reshape(dims)
    except ValueError as error:
        raise UsageError("E-OP-RESHAPE", None, f"an array of shape {list(data.shape)} cannot become {dims}", hint=CHECK) from error


@upgrade(reshape, below=5)
def shape_was_an_attribute(node: Node, build: Builder) -> None:
    """Before opset 5 the shape was an attribute."""
    node.inputs.append(build.constant(node.attributes.pop("shape", [])))
    node.attributes.pop("consumed_inputs", None)


def _flatten(node: Inference) -> None:
    shape = node.shape(0)
    if shape is None:
        node.set(0, node.dtype(0), (None, None))
        return
    axis = axis_of(node, "axis", len(shape), inclusive=True)
    node.set(0, node.dtype(0), (_product(shape[:axis]), _product(shape[axis:])))


def _product(dims: Shape) -> Dim:
    if all(isinstance(dim, int) for dim in dims):
        return math.prod(dim for dim in dims if isinstance(dim, int))
    others = [dim for dim in dims if dim != 1]
    return others[0] if len(others) == 1 else 0 if 0 in dims else None


@op(
    "Flatten", since=25, infer=_flatten,
    examples=[case("f32[2,3,4]"), case("f32[2,3,4]", axis=-1), case("f32[2,3]", axis=0), case("f32[0,3]", axis=2)],
)
def flatten(x: np.ndarray, *, axis: int = 1) -> np.ndarray:
    """A matrix whose rows are the dimensions before `axis`."""
    rows = math.prod(x.shape[: axis if axis >= 0 else axis + x.ndim])
    return x.reshape(rows, x.size // rows if rows else math.prod(x.shape[axis if axis >= 0 else axis + x.ndim :]))


def _squeeze(node: Inference) -> None:
    shape, axes = node.shape(0), node.data(1)
    if shape is None or (node.value(1) is not None and axes is None):
        node.set(0, node.dtype(0), _ranked(node, -1), data=node.data(0))
        return
    if node.value(1) is None:
        if all(dim is not None and not isinstance(dim, str) for dim in shape):
            node.set(0, node.dtype(0), [dim for dim in shape if dim != 1], data=node.data(0))
        return
    gone = axes_of(node, axes, len(shape))
    for axis in gone:
        if isinstance(shape[axis], int) and shape[axis] != 1:
            node.refuse(f"dimension {axis} has length {shape[axis]} and cannot be left out")
    node.set(0, node.dtype(0), [dim for axis, dim in enumerate(shape) if axis not in gone], data=node.data(0))


def _ranked(node: Inference, sign: int) -> Shape | None:
    """A shape of unknown lengths, when the rank follows from the number of axes."""
    shape, axes = node.shape(0), node.shape(1)
    if shape is None or not axes or not isinstance(axes[0], int):
        return None
    return (None,) * (len(shape) + sign * axes[0])


@op("Squeeze", since=25, infer=_squeeze, examples=[case("f32[1,3,1]"), case("f32[1,3,1]", [0]), case("f32[1,3,1]", [-1])])
def squeeze(data: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
    """Without dimensions of length 1: those named, or all."""
    try:
        return np.squeeze(data, None if axes is None else tuple(int(axis) for axis in axes.reshape(-1)))
    except ValueError as error:
        raise UsageError("E-OP-SQUEEZE", None, f"Squeeze of {list(data.shape)} along {axes}: {error}", hint=CHECK) from error


def _unsqueeze(node: Inference) -> None:
    shape, axes = node.shape(0), node.data(1)
    if shape is None or axes is None:
        node.set(0, node.dtype(0), _ranked(node, 1))
        return
    new = axes_of(node, axes, len(shape) + len(axes))
    rest = iter(shape)
    made = [1 if axis in new else next(rest) for axis in range(len(shape) + len(axes))]
    node.set(0, node.dtype(0), made, data=node.data(0) if len(made) <= 1 else None)


@op("Unsqueeze", since=25, infer=_unsqueeze, examples=[case("f32[3,4]", [0]), case("f32[3,4]", [0, -1]), case("f32[3,4]", [2, 1])])
def unsqueeze(data: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """With new dimensions of length 1 at the places of the result that `axes` name."""
    return np.expand_dims(data, tuple(int(axis) for axis in axes.reshape(-1)))


@upgrade(squeeze, unsqueeze, below=13)
def axes_were_an_attribute(node: Node, build: Builder) -> None:
    """Before opset 13 the axes were an attribute."""
    if "axes" in node.attributes:
        node.inputs.append(build.constant(node.attributes.pop("axes")))
