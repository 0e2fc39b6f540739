"""Optimizer steps: Adagrad (Duchi et al., 2011), Adam (Kingma and Ba, 2014), Momentum."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import case
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import F64
from ..rules.decomposition import composed
from ..rules.expression import Term
from ..rules.shape_rules import model_error

DOMAIN = "ai.onnx.preview.training"
RATE = np.array(0.1, np.float32)
FIRST, THIRD = np.array(0), np.array(3)


def _groups(name: str, tensors: tuple[Term, ...], kinds: int) -> list[tuple[Term, ...]]:
    """The tensors of each variable: its value, its gradient, and what was accumulated."""
    count, rest = divmod(len(tensors), kinds)
    if rest or not count:
        raise model_error(
            f"{name} needs tensors of each kind", "E-OP-ARITY", expected=f"a multiple of {kinds}", found=len(tensors)
        )
    return [tensors[index::count] for index in range(count)]


def _updated(node: Inference, kept: tuple[int, ...], kinds: int) -> None:
    """New values as the variables, then what is accumulated anew."""
    count = (len(node) - 2) // kinds
    for position, kind in enumerate(kept):
        for index in range(count):
            source = 2 + kind * count + index
            node.set(position * count + index, node.dtype(source), node.shape(source))


@composed(
    "Adagrad",
    DOMAIN,
    1,
    types="wide i64 wide** -> *",
    infer=lambda node: _updated(node, (0, 2), 3),
    in_f32=False,
    examples=[
        case(
            RATE,
            THIRD,
            "f32[2,3]",
            "f32[2,3]",
            np.ones((2, 3), np.float32),
            outputs=2,
            norm_coefficient=0.01,
            decay_factor=0.1,
            epsilon=1e-3,
        ),
        case(
            RATE,
            FIRST,
            "f32[2]",
            "f32[3]",
            "f32[2]",
            "f32[3]",
            np.ones(2, np.float32),
            np.ones(3, np.float32),
            outputs=4,
        ),
    ],
)
def adagrad(
    rate: Term,
    count: Term,
    *tensors: Term,
    norm_coefficient: float = 0.0,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
) -> tuple[Term, ...]:
    """Values, gradients and accumulated squares in; values and squares out."""
    values, squares = [], []
    step = rate.scalar.cast(F64) / (1 + count.scalar.cast(F64) * decay_factor)
    for x, gradient, square in _groups("Adagrad", tensors, 3):
        grad = norm_coefficient * x + gradient
        squares.append(square + grad * grad)
        values.append(x - step.cast(x.dtype) * grad / (squares[-1].call("Sqrt") + epsilon))
    return (*values, *squares)


@composed(
    "Adam",
    DOMAIN,
    1,
    types="wide i64 wide** -> *",
    infer=lambda node: _updated(node, (0, 2, 3), 4),
    in_f32=False,
    examples=[
        case(
            RATE,
            FIRST,
            "f32[2,3]",
            "f32[2,3]",
            "f32[2,3]",
            np.ones((2, 3), np.float32),
            outputs=3,
            norm_coefficient=0.01,
        ),
        case(
            RATE,
            FIRST,
            "f32[2]",
            "f32[2]",
            "f32[2]",
            np.ones(2, np.float32),
            outputs=3,
            alpha=0.95,
            beta=0.1,
            epsilon=1e-3,
        ),
    ],
)
def adam(
    rate: Term,
    count: Term,
    *tensors: Term,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Term, ...]:
    """Values, gradients, averaged gradients and averaged squares in; values and both averages out."""
    values, averages, squares = [], [], []
    times, step = count.scalar.cast(F64), rate.scalar.cast(F64)
    rises, falls = (1 - step.number(decay).call("Pow", times) for decay in (beta, alpha))
    factor = (times > 0).where(step * rises.call("Sqrt") / falls, step)
    for x, gradient, average, square in _groups("Adam", tensors, 4):
        grad = norm_coefficient * x + gradient
        averages.append(alpha * average + (1 - alpha) * grad)
        squares.append(beta * square + (1 - beta) * grad * grad)
        moved = x - factor.cast(x.dtype) * averages[-1] / (squares[-1].call("Sqrt") + epsilon)
        values.append((1 - norm_coefficient_post) * moved)
    return (*values, *averages, *squares)


@composed(
    "Momentum",
    DOMAIN,
    1,
    types="wide i64 wide** -> *",
    infer=lambda node: _updated(node, (0, 2), 3),
    in_f32=False,
    examples=[
        case(
            RATE,
            THIRD,
            "f32[2,3]",
            "f32[2,3]",
            "f32[2,3]",
            outputs=2,
            alpha=0.9,
            beta=0.1,
            mode="standard",
            norm_coefficient=0.01,
        ),
        case(
            RATE,
            FIRST,
            "f32[2]",
            "f32[2]",
            "f32[2]",
            outputs=2,
            alpha=0.9,
            beta=0.1,
            mode="nesterov",
            norm_coefficient=0.01,
        ),
    ],
)
def momentum(
    rate: Term, count: Term, *tensors: Term, alpha: float, beta: float, mode: str, norm_coefficient: float
) -> tuple[Term, ...]:
    """Values, gradients and momenta in; values and momenta out."""
    if mode not in ("standard", "nesterov"):
        raise model_error("Momentum has no such mode", expected="standard or nesterov", found=mode)
    values, momenta = [], []
    for x, gradient, velocity in _groups("Momentum", tensors, 3):
        grad = norm_coefficient * x + gradient
        share = (count.scalar.cast(F64) > 0).where(x.number(beta), x.number(1))
        momenta.append(alpha * velocity + share * grad)
        direction = grad + alpha * momenta[-1] if mode == "nesterov" else momenta[-1]
        values.append(x - rate.scalar.cast(x.dtype) * direction)
    return (*values, *momenta)
