"""Squeeze and Unsqueeze: dimensions of length one removed and inserted."""

from __future__ import annotations

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Dim, Node
from ...runtime.ir.op import Trait, case, op, upgrade
from ...runtime.ir.shape_inference import Inference
from ..rules.axes import axes_in, axes_of, constants, elements, input_error


def infer_squeeze(node: Inference) -> None:
    """The dims that are left; elements stay known."""
    shape = node.shape(0)
    if shape is None:
        node.set(0, node.dtype(0), None)
        return
    if node.value(1) is None:
        left = [dim for dim in shape if dim != 1] if constants(shape) is not None else None
        node.set(0, node.dtype(0), left, data=node.data(0) if left is not None and len(left) <= 1 else None)
        return
    given = elements(node, 1)
    axes = constants(given)
    if given is not None and len(given) > len(shape):
        node.fail(f"{counted(len(given), 'axis', 'axes')} of {list(shape)}")
    if given is None or axes is None:
        node.set(0, node.dtype(0), None if given is None else [None] * (len(shape) - len(given)))
        return
    taken = axes_of(node, axes, len(shape))
    if any(isinstance(shape[axis], int) and shape[axis] != 1 for axis in taken):
        node.fail(f"axes {list(axes)} of {list(shape)} are not of length one")
    left = [dim for index, dim in enumerate(shape) if index not in taken]
    node.set(0, node.dtype(0), left, data=node.data(0) if len(left) <= 1 else None)


@op(
    "Squeeze",
    since=25,
    types="any i64",
    traits=(Trait.RESHAPES, Trait.MOVES),
    infer=infer_squeeze,
    examples=[
        case("f32[1,3,1,2]", np.array([0, 2])),
        case("f32[1,3,1,2]"),
        case("f32[1,3,1,2]", np.array([-2])),
        case("i64[1]", np.array([0])),
        case("f32[1,0]"),
    ],
)
def squeeze(x: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
    """`x` without those axes, or without all of length one."""
    if axes is None:
        return x.reshape([length for length in x.shape if length != 1])
    taken = axes_in("Squeeze", axes.reshape(-1), x.ndim)
    if any(x.shape[axis] != 1 for axis in taken):
        why = "an axis is not of length one"
        raise input_error("Squeeze", why, expected=f"axes of length one in {list(x.shape)}", found=axes.tolist())
    return x.reshape([length for index, length in enumerate(x.shape) if index not in taken])


def infer_unsqueeze(node: Inference) -> None:
    """Ones at the axes of the result; elements stay known."""
    shape, given = node.shape(0), elements(node, 1)
    axes = constants(given)
    if shape is None or given is None:
        node.set(0, node.dtype(0), None)
        return
    rank = len(shape) + len(given)
    if axes is None:
        node.set(0, node.dtype(0), [None] * rank)
        return
    put, rest = axes_of(node, axes, rank), iter(shape)
    widened: list[Dim] = [1 if index in put else next(rest) for index in range(rank)]
    node.set(0, node.dtype(0), widened, data=node.data(0) if rank <= 1 else None)


@op(
    "Unsqueeze",
    since=25,
    types="any i64",
    traits=(Trait.RESHAPES, Trait.MOVES),
    infer=infer_unsqueeze,
    examples=[
        case("f32[3,2]", np.array([0, 2])),
        case("f32[3,2]", np.array([-1])),
        case("i64[]", np.array([0])),
        case("f32[0]", np.array([1])),
    ],
)
def unsqueeze(x: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """`x` with axes of length one, which count in the result."""
    rank = x.ndim + axes.size
    put, rest = axes_in("Unsqueeze", axes.reshape(-1), rank), iter(x.shape)
    return x.reshape([1 if index in put else next(rest) for index in range(rank)])


@upgrade(squeeze, unsqueeze, below=13)
def axes_were_an_attribute(node: Node, build: Builder) -> None:
    """Before opset 13 the axes were an attribute."""
    axes = node.attributes.pop("axes", None)
    if axes is not None:
        node.inputs.append(build.constant(axes))
