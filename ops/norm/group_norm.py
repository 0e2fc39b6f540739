"""Group (Wu and He 2018, arXiv:1803.08494), instance and mean-variance normalization."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Node
from ...runtime.ir.op import Trait, case, op, upgrade
from ...runtime.ir.shape_inference import Inference
from ...runtime.plan.kernel_api import BaseStep
from ...runtime.plan.rows import Described, Output, Rows
from ..elementwise.declare import quiet
from ..reduce.reduction_axes import mean_over
from ..rules.axes import axes_of
from ..rules.expression import Term, lowered
from ..rules.precision import widened
from ..rules.shape_rules import same_as_input, shape_error
from .moments import MOMENTS, MOMENTS_ABOVE, normal, shifted


def _infer(node: Inference) -> None:
    x, groups = node.shape(0), node.attributes["num_groups"]
    if x is not None and (len(x) < 3 or groups < 1 or (isinstance(x[1], int) and x[1] % groups)):
        node.fail(f"an input of shape {x} has no {groups} groups of channels")
    _refuse_matrices(node)
    same_as_input(node)


def _refuse_matrices(node: Inference) -> None:
    """Refuse a scale or bias that is not of rank 1."""
    for index in (1, 2):
        shape = node.shape(index)
        if shape is not None and len(shape) != 1:
            node.fail(f"input {index} has shape {shape}; it is of rank 1")


def _infer_instance(node: Inference) -> None:
    x = node.shape(0)
    if x is not None and len(x) < 3:
        node.fail(f"an input of shape {x} has no spatial axes")
    _refuse_matrices(node)
    same_as_input(node)


def _normalized(
    x: np.ndarray, groups: int, scale: np.ndarray, bias: np.ndarray, epsilon: float, what: str
) -> np.ndarray:
    """[n, channels, ...] with zero mean and unit variance in each group of channels, then scaled and shifted by
    channel."""
    if (
        x.ndim < 2
        or groups < 0
        or (x.shape[1] % groups if groups else x.shape[1])
        or scale.shape != x.shape[1:2]
        or bias.shape != x.shape[1:2]
    ):
        raise shape_error(
            what,
            f"an input of shape {x.shape} in {groups} groups, a scale of {scale.shape} and a bias of {bias.shape} do "
            "not fit together",
        )
    if not x.size:
        return x.copy()
    split = x.reshape(len(x), groups, x.shape[1] // groups, *x.shape[2:])
    axes = tuple(range(2, split.ndim))
    y = split - mean_over(split, axes)
    y /= np.sqrt(mean_over(np.square(y), axes) + x.dtype.type(epsilon))
    y = y.reshape(x.shape)
    along = (-1, *(1,) * (x.ndim - 2))
    y *= scale.reshape(along)
    y += bias.reshape(along)
    return y


def _rows(step: BaseStep) -> Described:
    """Groups of channels of an image; scale and bias are of channels."""
    x, scale, bias = step.inputs
    assert x is not None
    assert scale is not None
    assert bias is not None
    groups = step.attributes.get("num_groups", x.shape[1])
    if not groups or x.shape[1] % groups or {scale.shape, bias.shape} != {x.shape[1:2]}:
        return f"{groups} groups of channels of {x.shape} are not possible"
    shape = (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    channels = (groups, shape[2], *[1] * (len(x.shape) - 2))
    operands = {"x": x.view(shape), "scale": scale.view(channels), "bias": bias.view(channels)}
    outputs = [Output(shifted, step.output())]
    return Rows(shape, range(2, len(shape)), operands, MOMENTS, outputs, {"epsilon": step.attributes["epsilon"]})


def _mean_variance_rows(step: BaseStep) -> Described:
    x = step.inputs[0]
    assert x is not None
    return Rows(x.shape, step.attributes["axes"], {"x": x}, MOMENTS_ABOVE, [Output(normal, step.output())])


def _group_norm_of_terms(
    x: Term, scale: Term, bias: Term, *, num_groups: int, epsilon: float, stash_type: int
) -> Term | None:
    if x.rank is None:
        return None
    shape = x.value.shape or ()
    if 0 in shape:
        count = math.prod(dim for dim in shape[2:] if isinstance(dim, int)) * int(shape[1] or 0) // num_groups
        groups = x.call("Reshape", x.integers([int(shape[0] or 0), num_groups, count]), allowzero=1)
    else:
        groups = x.call("Reshape", x.integers([0, num_groups, -1]))
    axes = x.integers([2])
    centred = groups - groups.call("ReduceMean", axes, keepdims=1)
    y = (centred / ((centred * centred).call("ReduceMean", axes, keepdims=1) + epsilon).call("Sqrt")).call(
        "Reshape", x.shape
    )
    along = x.integers([-1, *(1,) * (x.rank - 2)])
    return y * scale.call("Reshape", along) + bias.call("Reshape", along)


@op(
    "GroupNormalization",
    since=21,
    types="T=float T T",
    traits=(Trait.MIXES_POSITIONS, Trait.SUMS),
    infer=_infer,
    rows=_rows,
    lower=lowered(_group_norm_of_terms),
    examples=[
        case("f32[2,6,4,3]", "f32[6]", "f32[6]", num_groups=3),
        case("f32[2,4,5]", "f32[4]", "f32[4]", num_groups=1, epsilon=0.1, stash_type=1),
        case("f32[0,4,5]", "f32[4]", "f32[4]", num_groups=2),
    ],
)
@quiet
@widened
def group_normalization(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> np.ndarray:
    """Shape of `x`, [n, channels, ...]; `scale` and `bias` are of channels."""
    return _normalized(x, num_groups, scale, bias, epsilon, "GroupNormalization")


@upgrade(group_normalization, below=21)
def of_groups(node: Node, build: Builder) -> None:
    """Before opset 21 scale and bias were of groups."""
    groups, last, flat = build.constant([node.attributes["num_groups"]]), build.constant([1]), build.constant([-1])
    channels = build.add("Shape", node.inputs[:1], {"start": 1, "end": 2})
    table = build.add("Concat", [groups, build.add("Div", [channels, groups])], {"axis": 0})
    for index in (1, 2):
        column = build.add("Unsqueeze", [node.inputs[index], last])
        node.inputs[index] = build.add("Reshape", [build.add("Expand", [column, table]), flat])
    build.keep(node)


@op(
    "InstanceNormalization",
    since=22,
    types="T=float T T",
    traits=(Trait.MIXES_POSITIONS, Trait.SUMS, Trait.IMPRECISE_IN_F16),
    infer=_infer_instance,
    rows=_rows,
    examples=[
        case("f32[2,3,4,5]", "f32[3]", "f32[3]"),
        case("f32[2,3,7]", "f32[3]", "f32[3]", epsilon=0.1),
        case("f32[0,3,4]", "f32[3]", "f32[3]"),
    ],
)
@quiet
@widened
def instance_normalization(x: np.ndarray, scale: np.ndarray, b: np.ndarray, *, epsilon: float = 1e-5) -> np.ndarray:
    """Shape of `x`, [n, channels, ...], each channel of each image by itself (Ulyanov et al. 2016,
    arXiv:1607.08022)."""
    return _normalized(x, x.shape[1] if x.ndim > 1 else 0, scale, b, epsilon, "InstanceNormalization")


@upgrade(instance_normalization, below=6)
def nothing_consumed(node: Node, build: Builder) -> None:
    """Before opset 6 a hint named the inputs that may be overwritten."""
    node.attributes.pop("consumed_inputs", None)


def _infer_mean_variance(node: Inference) -> None:
    x = node.shape(0)
    if x is not None:
        axes_of(node, node.attributes["axes"], len(x))
    same_as_input(node)


@op(
    "MeanVarianceNormalization",
    since=13,
    types="float",
    traits=(Trait.MIXES_POSITIONS, Trait.IMPRECISE_IN_F16),
    infer=_infer_mean_variance,
    rows=_mean_variance_rows,
    examples=[case("f32[2,3,4,5]"), case("f32[2,3,4]", axes=[0, -1]), case("f32[0,3,4,5]", axes=[1])],
)
@quiet
@widened
def mean_variance_normalization(x: np.ndarray, *, axes: tuple[int, ...] | list[int] = (0, 2, 3)) -> np.ndarray:
    """Shape of `x`, with zero mean and unit variance over `axes`."""
    if any(not -x.ndim <= axis < x.ndim for axis in axes):
        raise shape_error("MeanVarianceNormalization", f"axes {list(axes)} of an input of rank {x.ndim}")
    y = x - mean_over(x, axes)
    y /= np.sqrt(mean_over(np.square(y), axes)) + x.dtype.type(1e-9)
    return y
