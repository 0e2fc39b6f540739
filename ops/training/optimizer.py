"""Optimizer steps: Adagrad (Duchi et al., 2011), Adam (Kingma and Ba, 2014), Momentum."""

from __future__ import annotations

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference

DOMAIN = "ai.onnx.preview.training"
RATE = np.array(0.1, np.float32)
FIRST, THIRD = np.array(0), np.array(3)


def _groups(name: str, tensors: tuple[np.ndarray, ...], kinds: int) -> list[tuple[np.ndarray, ...]]:
    """The tensors of each variable: its value, its gradient, and what was accumulated."""
    count, rest = divmod(len(tensors), kinds)
    if rest or not count:
        raise UsageError(
            "E-OP-ARITY",
            None,
            f"{name} needs tensors of each kind",
            expected=f"a multiple of {kinds}",
            found=len(tensors),
            hint="Correct the model",
        )
    return [tensors[index::count] for index in range(count)]


def _updated(node: Inference, kept: tuple[int, ...], kinds: int) -> None:
    """New values as the variables, then what is accumulated anew."""
    count = (len(node) - 2) // kinds
    for place, kind in enumerate(kept):
        for index in range(count):
            source = 2 + kind * count + index
            node.set(place * count + index, node.dtype(source), node.shape(source))


@op(
    "Adagrad",
    DOMAIN,
    1,
    infer=lambda node: _updated(node, (0, 2), 3),
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
    rate: np.ndarray,
    count: np.ndarray,
    *tensors: np.ndarray,
    norm_coefficient: float = 0.0,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
) -> tuple[np.ndarray, ...]:
    """Values, gradients and accumulated squares in; values and squares out."""
    values, squares = [], []
    for x, gradient, square in _groups("Adagrad", tensors, 3):
        step = x.dtype.type(rate.item() / (1 + count.item() * decay_factor))
        slope = norm_coefficient * x + gradient
        squares.append(square + slope * slope)
        values.append(x - step * slope / (np.sqrt(squares[-1]) + epsilon))
    return (*values, *squares)


@op(
    "Adam",
    DOMAIN,
    1,
    infer=lambda node: _updated(node, (0, 2, 3), 4),
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
    rate: np.ndarray,
    count: np.ndarray,
    *tensors: np.ndarray,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[np.ndarray, ...]:
    """Values, gradients, averaged gradients and averaged squares in; values and both averages out."""
    values, averages, squares = [], [], []
    times = count.item()
    factor = rate.item() * (1 - beta**times) ** 0.5 / (1 - alpha**times) if times > 0 else rate.item()
    for x, gradient, average, square in _groups("Adam", tensors, 4):
        slope = norm_coefficient * x + gradient
        averages.append(alpha * average + (1 - alpha) * slope)
        squares.append(beta * square + (1 - beta) * slope * slope)
        values.append((1 - norm_coefficient_post) * (x - factor * averages[-1] / (np.sqrt(squares[-1]) + epsilon)))
    return (*values, *averages, *squares)


@op(
    "Momentum",
    DOMAIN,
    1,
    infer=lambda node: _updated(node, (0, 2), 3),
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
    rate: np.ndarray,
    count: np.ndarray,
    *tensors: np.ndarray,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> tuple[np.ndarray, ...]:
    """Values, gradients and momenta in; values and momenta out."""
    if mode not in ("standard", "nesterov"):
        raise UsageError(
            "E-OP-VALUE",
            None,
            "Momentum has no such mode",
            expected="standard or nesterov",
            found=mode,
            hint="Correct the model",
        )
    values, momenta = [], []
    for x, gradient, velocity in _groups("Momentum", tensors, 3):
        slope = norm_coefficient * x + gradient
        momenta.append(alpha * velocity + (beta if count.item() > 0 else 1) * slope)
        direction = slope + alpha * momenta[-1] if mode == "nesterov" else momenta[-1]
        values.append(x - x.dtype.type(rate.item()) * direction)
    return (*values, *momenta)
