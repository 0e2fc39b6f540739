"""AdamStep: one step of Adam for one parameter, by numbers that are inputs."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.domain import CANDLE
from ...runtime.ir.op import case
from ...runtime.ir.shape_inference import Inference
from ..rules.decomposition import composed
from ..rules.expression import Term

NUMBERS = tuple(np.array(item, np.float32) for item in (0.1, 0.5, 1e-3, 0.1, 0.9, 0.1, 0.99, 0.02))


def _infer(node: Inference) -> None:
    for index, source in enumerate((0, 2, 3)):
        node.set(index, node.dtype(source), node.shape(source))


@composed(
    "AdamStep",
    CANDLE,
    types="T=wide T T T T T T T T T T T -> 3",
    infer=_infer,
    in_f32=False,
    examples=[
        case("f32[3,5]", "f32[3,5]", "f32[3,5]", np.ones((3, 5), np.float32), *NUMBERS, outputs=3),
        case("f32[]", "f32[]", "f32[]", np.ones((), np.float32), *NUMBERS, outputs=3),
    ],
)
def adam_step(
    value: Term,
    grad: Term,
    mean: Term,
    square: Term,
    rate: Term,
    scale: Term,
    eps: Term,
    share1: Term,
    keep2: Term,
    share2: Term,
    shrink: Term,
    decay: Term,
) -> tuple[Term, Term, Term]:
    """The next value, mean gradient and mean square, of inputs of one shape and 0-d numbers.

    Args:
        rate: learning rate over the bias correction of the mean.
        scale: root of the bias correction of the square.
        share1, keep2, share2: what the means take of the gradient, and the second one keeps.
        shrink: what weight decay leaves of the value; `decay`: what it adds of the value to the gradient.
    """
    slope = grad + value * decay
    means = mean + share1 * (slope - mean)
    squares = square * keep2 + share2 * (slope * slope)
    return value * shrink - rate * (means / (squares.call("Sqrt") / scale + eps)), means, squares
