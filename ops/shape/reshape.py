"""Reshape and Flatten: the same elements in another shape."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Dim, Node
from ...runtime.ir.op import Trait, case, op, upgrade
from ...runtime.ir.shape_inference import Inference, Shape
from ..rules.axes import elements, input_error, product, quotient


def infer_reshape(node: Inference) -> None:
    """The shape that is asked for, its zeros and its -1 filled in from the input's shape; elements stay known."""
    asked, shape = elements(node, 1), node.shape(0)
    if asked is None:
        node.set(0, node.dtype(0), None)
        return
    target = [_copied(node, index, dim, shape) for index, dim in enumerate(asked)]
    open_ = [index for index, dim in enumerate(target) if dim == -1]
    if len(open_) > 1 or any(isinstance(dim, int) and dim < -1 for dim in target):
        node.fail(f"the shape {list(asked)} leaves open more than one length, or has negative ones")
    unknown = open_ or [index for index, dim in enumerate(target) if dim is None]
    if len(unknown) == 1:
        rest = target[: unknown[0]] + target[unknown[0] + 1 :]
        target[unknown[0]] = None if shape is None else quotient(shape, rest)
    elif (
        shape is not None
        and all(isinstance(dim, int) for dim in (*shape, *target))
        and product(shape) != product(target)
    ):
        node.fail(f"{list(shape)} does not have as many elements as {target}")
    node.set(0, node.dtype(0), target, data=node.data(0) if len(target) <= 1 else None)


def _copied(node: Inference, index: int, dim: Dim, shape: Shape | None) -> Dim:
    if dim != 0 or node.attributes["allowzero"]:
        return dim
    if shape is None:
        return None
    if index >= len(shape):
        node.fail(f"the shape copies dim {index} of an input of {counted(len(shape), 'dim')}")
    return shape[index]


@op(
    "Reshape",
    since=25,
    types="any i64",
    traits=(Trait.RESHAPES, Trait.MOVES),
    infer=infer_reshape,
    examples=[
        case("f32[2,3,4]", np.array([4, 6])),
        case("f32[2,3,4]", np.array([0, -1])),
        case("f32[2,3,4]", np.array([-1])),
        case("i64[1]", np.zeros(0, np.int64)),
        case("f32[0,3]", np.array([3, 0]), allowzero=1),
        case("string[2,3]", np.array([3, 2])),
        case("f32[0,3]", np.array([0, 1, 3])),
    ],
)
def reshape(x: np.ndarray, shape: np.ndarray, *, allowzero: int = 0) -> np.ndarray:
    """`x` in the shape given; 0 keeps the input's length (unless `allowzero`), one -1 stands for what is left."""
    target = shape.reshape(-1).tolist()
    if not allowzero:
        if any(dim == 0 and index >= x.ndim for index, dim in enumerate(target)):
            raise input_error("Reshape", "the shape copies a dim that the input does not have", found=target)
        target = [x.shape[index] if dim == 0 else dim for index, dim in enumerate(target)]
    if target.count(-1) == 1:
        rest = math.prod(dim for dim in target if dim != -1)
        if rest > 0 and x.size % rest == 0:
            target[target.index(-1)] = x.size // rest
    if any(dim < 0 for dim in target) or math.prod(target) != x.size:
        raise input_error(
            "Reshape", "the shapes differ in their number of elements", expected=list(x.shape), found=shape.tolist()
        )
    return x.reshape(target)


@upgrade(reshape, below=5)
def shape_was_an_attribute(node: Node, build: Builder) -> None:
    """Before opset 5 the shape was an attribute."""
    node.attributes.pop("consumed_inputs", None)
    if "shape" in node.attributes:
        node.inputs.append(build.constant(node.attributes.pop("shape")))


def infer_flatten(node: Inference) -> None:
    """Two dims: the products of those before the axis and of the others."""
    shape, axis = node.shape(0), node.attributes["axis"]
    if shape is None:
        node.set(0, node.dtype(0), (None, None))
        return
    if not -len(shape) <= axis <= len(shape):
        node.fail(f"axis {axis} does not exist in {counted(len(shape), 'dim')}")
    at = axis + len(shape) if axis < 0 else axis
    node.set(0, node.dtype(0), (product(shape[:at]), product(shape[at:])))


@op(
    "Flatten",
    since=25,
    types="any",
    traits=(Trait.RESHAPES, Trait.MOVES),
    infer=infer_flatten,
    examples=[
        case("f32[2,3,4]"),
        case("f32[2,3,4]", axis=0),
        case("f32[2,3,4]", axis=-1),
        case("f32[2,3,4]", axis=3),
        case("f32[2,0,4]", axis=2),
    ],
)
def flatten(x: np.ndarray, *, axis: int = 1) -> np.ndarray:
    """A matrix whose rows are the elements before `axis` (from -rank to rank)."""
    if not -x.ndim <= axis <= x.ndim:
        raise input_error(
            "Flatten", "the axis does not exist", "E-OP-AXIS", expected=f"from {-x.ndim} to {x.ndim}", found=axis
        )
    at = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:at]), math.prod(x.shape[at:]))
