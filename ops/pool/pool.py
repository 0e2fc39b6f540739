"""MaxPool, AveragePool and LpPool: the maximum, mean or p-norm of each window."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.call import Call
from ...runtime.ir.graph import Node
from ...runtime.ir.op import case, op, upgrade
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import I64
from ..elementwise.declare import quiet
from ..rules.output_limit import allowed
from ..rules.p_norm import powers, root
from ..rules.precision import widened
from ..rules.sliding_window import Axis, fold, taps, window

NAMES = ("strides", "pads", "dilations", "auto_pad", "ceil_mode")


def _infer(node: Inference) -> None:
    x = node.shape(0)
    shape = None
    if x is not None:
        if len(x) < 3:
            node.fail(f"the input has shape {x}, windows need a spatial axis")
        made = window(
            node.node.op.name, len(x) - 2, node.attributes["kernel_shape"], *(node.attributes[name] for name in NAMES)
        )
        shape = (*x[:2], *made.lengths(x[2:]))
    node.set(0, node.dtype(0), shape)
    node.set(1, I64, shape)


def lowest(dtype: np.dtype[Any]) -> float:
    """The neutral element of the maximum."""
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


@op(
    "MaxPool",
    since=22,
    types="float+byte -> 2",
    infer=_infer,
    examples=[
        case("f32[2,3,7,6]", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], outputs=2),
        case(
            "f32[1,2,8,5]",
            kernel_shape=[2, 3],
            dilations=[2, 1],
            ceil_mode=1,
            strides=[2, 2],
            storage_order=1,
            outputs=2,
        ),
        case("f32[2,2,9]", kernel_shape=[4], auto_pad="SAME_UPPER", strides=[3]),
        case("u8[1,2,4,5,6]", kernel_shape=[2, 3, 2], auto_pad="SAME_LOWER"),
        case("i8[1,2,5,5]", kernel_shape=[2, 2], auto_pad="VALID"),
        case("f32[0,2,5,5]", kernel_shape=[2, 2]),
    ],
)
@quiet
@widened
def max_pool(
    x: np.ndarray,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
    call: Call,
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """Largest element of each window of [n, channels, spatial...], and where in the whole tensor it was (the first of
    equals)."""
    axes = window("MaxPool", x.ndim - 2, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode).axes(x.shape[2:])
    if len(call.used_outputs) < 2 or not call.used_outputs[1]:
        return fold(np.maximum, x, axes, lowest(x.dtype))
    shape = allowed((*x.shape[:2], *(axis.out for axis in axes)), 8, "MaxPool")
    best, found = np.full(shape, lowest(x.dtype), x.dtype), np.full(shape, -1, np.int64)
    positions = np.arange(int(np.prod(x.shape[2:]))).reshape(x.shape[2:], order="F" if storage_order else "C")
    for _, out, seen in taps(axes):
        part, candidates = (slice(None), slice(None), *out), x[(slice(None), slice(None), *seen)]
        better = (
            (candidates > best[part]) | (found[part] < 0) | ((candidates != candidates) & (best[part] == best[part]))
        )
        np.copyto(best[part], candidates, where=better)
        np.copyto(found[part], positions[seen], where=better)
    first = np.arange(shape[0] * shape[1]).reshape(*shape[:2], *(1,) * len(axes)) * positions.size
    return best, np.where(found < 0, found, found + first)


@op(
    "AveragePool",
    since=22,
    types="float",
    infer=_infer,
    examples=[
        case("f32[2,3,7,6]", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
        case("f32[2,3,7,6]", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1], count_include_pad=1, ceil_mode=1),
        case("f32[1,2,8,5]", kernel_shape=[2, 3], dilations=[2, 1], ceil_mode=1, strides=[2, 2]),
        case("f32[2,2,9]", kernel_shape=[4], auto_pad="SAME_UPPER", strides=[3]),
        case("f32[1,2,4,5,6]", kernel_shape=[2, 3, 2], auto_pad="SAME_LOWER"),
        case("f32[2,0,5,5]", kernel_shape=[2, 2], auto_pad="VALID"),
    ],
)
@quiet
@widened
def average_pool(
    x: np.ndarray,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> np.ndarray:
    """Average of each window of [n, channels, spatial...], over the elements inside the input, or inside its padding
    too."""
    axes = window("AveragePool", x.ndim - 2, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode).axes(
        x.shape[2:]
    )
    y = fold(np.add, x, axes, 0)
    for index, axis in enumerate(axes):
        y /= _counts(axis, bool(count_include_pad)).astype(x.dtype).reshape(-1, *(1,) * (len(axes) - 1 - index))
    return y


def _counts(axis: Axis, padded: bool) -> np.ndarray:
    """How many taps of each window are counted along an axis."""
    low, high = (-axis.begin, axis.size + axis.end) if padded else (0, axis.size)
    first = np.arange(axis.out) * axis.stride - axis.begin
    before, until = (np.clip(-((first - end) // axis.dilation), 0, axis.kernel) for end in (low, high))
    counted: np.ndarray = until - before
    return counted


@op(
    "LpPool",
    since=22,
    types="float",
    infer=_infer,
    examples=[
        case("f32[2,3,7,6]", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
        case("f32[1,2,8,5]", kernel_shape=[2, 3], p=3, dilations=[2, 1], ceil_mode=1),
        case("f32[2,2,9]", kernel_shape=[4], p=1, auto_pad="SAME_UPPER", strides=[3]),
        case("f32[1,0,5]", kernel_shape=[2], auto_pad="VALID"),
    ],
)
@quiet
@widened
def lp_pool(
    x: np.ndarray,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    p: int = 2,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> np.ndarray:
    """The p-norm of each window of [n, channels, spatial...]."""
    axes = window("LpPool", x.ndim - 2, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode).axes(x.shape[2:])
    return root(fold(np.add, powers(x, p), axes, 0), p)


@upgrade(lp_pool, below=2)
def whole_power(node: Node, build: Builder) -> None:
    """Before opset 2 the power was a float."""
    power = float(node.attributes.pop("p", 2.0))
    node.attributes["p"] = int(power) if power.is_integer() else power
