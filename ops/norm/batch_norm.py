"""Batch normalization: each channel less its mean, over its standard deviation (Ioffe and Szegedy 2015,
arXiv:1502.03167)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Node, Value
from ...runtime.ir.op import Trait, case, op, upgrade
from ...runtime.ir.shape_inference import Inference, Shape, merged
from ...runtime.plan.kernel_api import BaseStep
from ...runtime.plan.rows import Described, Output, Rows
from ..elementwise.declare import quiet
from ..reduce.reduction_axes import mean_over
from ..rules.shape_rules import shape_error
from .moments import VARIANCE

SPREADS = np.linspace(0.5, 2, 3, dtype=np.float32)
CHANNELS = ("f32[3]", "f32[3]", "f32[3]", SPREADS)


def _infer(node: Inference) -> None:
    x = node.shape(0)
    if x is not None and not x:
        node.fail("the input is a scalar")
    statistics: Shape | None = (x[1] if len(x) > 1 else 1,) if x is not None else None
    for index in (1, 2, 3, 4):
        statistics = merged(statistics, node.shape(index), f"input {index} of BatchNormalization")
    node.set(0, node.dtype(0), x)
    for index in (1, 2):
        node.set(index, node.dtype(3), statistics)


def wide(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of the computation, from those of the input and its statistics."""
    return np.dtype(np.float64 if np.float64 in dtypes else np.float32)


def given(x: float, scale: float, bias: float, old: float, spread: float, epsilon: float) -> float:
    """An element of a channel with given statistics."""
    return (x - old) / math.sqrt(spread + epsilon) * scale + bias


def _of_batch(x: float, scale: float, bias: float, mean: float, variance: float, epsilon: float) -> float:
    return (x - mean) / math.sqrt(variance + epsilon) * scale + bias


def _running_mean(old: float, mean: float, momentum: float) -> float:
    return old * momentum + mean * (1 - momentum)


def _running_variance(spread: float, variance: float, momentum: float) -> float:
    return spread * momentum + variance * (1 - momentum)


def _rows(step: BaseStep) -> Described:
    """A channel is a row."""
    x = step.inputs[0]
    assert x is not None
    channels = x.shape[1] if len(x.shape) > 1 else 1
    operands = {"x": x}
    for name, buffer in zip(("scale", "bias", "old", "spread"), step.inputs[1:5], strict=True):
        assert buffer is not None
        if buffer.count != channels:
            return f"statistics of {counted(buffer.count, 'channel')} do not fit {channels}"
        operands[name] = buffer.view((channels, *[1] * (len(x.shape) - 2)))
    numbers = {"epsilon": step.attributes["epsilon"], "momentum": step.attributes["momentum"]}
    if not step.attributes["training_mode"]:
        return Rows(x.shape, [], operands, [], [Output(given, step.output())], numbers)
    outputs = [Output(_of_batch, step.output())] if step.is_used(0) else []
    running = ((1, _running_mean), (2, _running_variance))
    outputs += [Output(function, step.output(index), True) for index, function in running if step.is_used(index)]
    axes = [axis for axis in range(len(x.shape)) if axis != 1]
    return Rows(x.shape, axes, operands, VARIANCE, outputs, numbers)


@op(
    "BatchNormalization",
    since=15,
    types="float T=float T U=float U -> 3",
    traits=(Trait.SUMS,),
    infer=_infer,
    rows=_rows,
    examples=[
        case("f32[2,3,4,5]", *CHANNELS),
        case("f32[2,3]", *CHANNELS, epsilon=0.1),
        case("f32[0,3,2]", *CHANNELS),
        case("f32[2,3,4,5]", *CHANNELS, training_mode=1, momentum=0.7, outputs=3),
    ],
)
@quiet
def batch_normalization(
    x: np.ndarray,
    scale: np.ndarray,
    b: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> np.ndarray | tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shape of `x`, [n, channels, ...]; in training the batch's own statistics are used, and the running ones follow.

    Statistics have their own dtype; everything is computed in f32, or in f64 for f64 inputs.
    """
    channels = x.shape[1] if x.ndim > 1 else 1
    if any(item.shape != (channels,) for item in (scale, b, mean, var)):
        raise shape_error(
            "BatchNormalization", f"scale, bias, mean and variance are needed for each of the {channels} channels"
        )
    kind = wide(x.dtype, mean.dtype)
    data: np.ndarray = x.astype(kind, copy=False)
    running: tuple[np.ndarray, np.ndarray] = mean.astype(kind), var.astype(kind)
    if training_mode:
        axes = tuple(axis for axis in range(x.ndim) if axis != 1)
        center = mean_over(data, axes)
        current = center.reshape(-1), mean_over(np.square(data - center), axes).reshape(-1)
        kept = kind.type(momentum)
        running = running[0] * kept + current[0] * (1 - kept), running[1] * kept + current[1] * (1 - kept)
    center, spread = current if training_mode else running
    factor: np.ndarray = scale.astype(kind) / np.sqrt(spread + kind.type(epsilon))
    along = (-1, *(1,) * (x.ndim - 2))
    y: np.ndarray = data * factor.reshape(along)
    y += (b.astype(kind) - center * factor).reshape(along)
    y = y.astype(x.dtype, copy=False)
    return (y, running[0].astype(mean.dtype), running[1].astype(mean.dtype)) if training_mode else y


@upgrade(batch_normalization, below=14)
def mode_from_outputs(node: Node, build: Builder) -> None:
    """Before opset 14 asking for statistics meant training, and the batch's own were outputs 3 and 4; before 9 there
    could be statistics of each element (`spatial` 0); before 7 `is_test` forbade training."""
    node.attributes.pop("consumed_inputs", None)
    is_test, of_channels = node.attributes.pop("is_test", 0), node.attributes.pop("spatial", 1)
    asked = any(value.name for value in node.outputs[1:])
    if of_channels and not asked:
        del node.outputs[1:]
        return
    inputs = list(node.inputs) if of_channels else _flat(node, build)
    attributes = {**node.attributes, "training_mode": int(asked and not is_test)}
    made = build.node(
        batch_normalization, inputs, attributes, outputs=3 if attributes["training_mode"] else 1, name=node.name
    )
    results: list[Value | None] = [*made.outputs]
    if is_test:
        results += [*node.inputs[3:5], *node.inputs[3:5]]
    elif any(value.name for value in node.outputs[3:]):
        results += build.node(batch_normalization, inputs, {**attributes, "momentum": 0.0}, outputs=3).outputs[1:]
    likes = [node.inputs[index] for index in (0, 3, 4, 3, 4)]
    for value, result, like in zip(node.outputs, results, likes, strict=False):
        if value.name:
            build.add("Reshape", [result, build.add("Shape", [like])], outputs=[value])


def _flat(node: Node, build: Builder) -> list[Value | None]:
    """The inputs with every element a channel of its own."""
    row = build.constant([-1])
    return [build.add("Flatten", node.inputs[:1]), *(build.add("Reshape", [value, row]) for value in node.inputs[1:])]
