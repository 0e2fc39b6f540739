"""Gated recurrent unit (Cho et al. 2014, arXiv:1406.1078): gates z, r and h, in this order."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import Tolerance, Trait, case, op, upgrade
from ..elementwise.declare import quiet
from ..rules.precision import widened
from .recurrent import Cell, RecurrentAttributes, clipper, functions, halves, infer_recurrent, plain_outputs, sequences

LENGTHS = np.array([3, 5], np.int32)


@op(
    "GRU",
    since=22,
    types="T=float T T T i32 T -> 2",
    traits=(Trait.MIXES_POSITIONS, Trait.PRODUCT),
    weights={1: 1, 2: 1},
    infer=infer_recurrent,
    tolerance=Tolerance(1e-5, 1e-5),
    examples=[
        case("f32[5,2,3]", "f32[1,12,3]", "f32[1,12,4]", "f32[1,24]", None, "f32[1,2,4]", hidden_size=4, outputs=2),
        case(
            "f32[5,2,3]",
            "f32[2,12,3]",
            "f32[2,12,4]",
            "f32[2,24]",
            LENGTHS,
            "f32[2,2,4]",
            hidden_size=4,
            direction="bidirectional",
            linear_before_reset=1,
            clip=0.6,
            outputs=2,
        ),
        case(
            "f32[5,2,3]",
            "f32[1,12,3]",
            "f32[1,12,4]",
            "f32[1,24]",
            hidden_size=4,
            direction="reverse",
            activations=["HardSigmoid", "LeakyRelu"],
            activation_alpha=[0.3, 0.2],
            activation_beta=[0.4],
            outputs=2,
        ),
        case("f32[2,5,3]", "f32[1,12,3]", "f32[1,12,4]", hidden_size=4, layout=1, outputs=2),
    ],
)
@quiet
@widened
def gru(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    sequence_lens: np.ndarray | None = None,
    initial_h: np.ndarray | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[np.ndarray, ...]:
    """Hidden states at every time and the last one, see `infer_recurrent` for shapes."""
    run = sequences(RecurrentAttributes("GRU", 3, direction, hidden_size, layout), x, w, r, b, sequence_lens)
    hidden, limit = r.shape[2], clipper(clip)
    forward_bias, recurrent_bias = halves(b, w)
    applied = functions(
        activations or ["Sigmoid", "Tanh"] * len(w), activation_alpha, activation_beta, 2 * len(w), "GRU"
    )

    def projected(index: int) -> np.ndarray:
        bias = forward_bias[index] + recurrent_bias[index]
        if linear_before_reset:
            bias[2 * hidden :] = forward_bias[index, 2 * hidden :]
        made: np.ndarray = run.x @ w[index].T + bias
        return made

    def cell(index: int) -> Cell:
        gates, candidate = r[index, : 2 * hidden].T, r[index, 2 * hidden :].T
        bias, (f, g) = recurrent_bias[index, 2 * hidden :], applied[2 * index : 2 * index + 2]

        def step(added: np.ndarray, h: np.ndarray) -> tuple[np.ndarray]:
            opened = f(limit(added[:, : 2 * hidden] + h @ gates))
            update, reset = opened[:, :hidden], opened[:, hidden:]
            inner = reset * (h @ candidate + bias) if linear_before_reset else (reset * h) @ candidate
            return ((1 - update) * g(limit(added[:, 2 * hidden :] + inner)) + update * h,)

        return step

    return run.run([cell(index) for index in range(len(w))], projected, [run.state(initial_h, hidden)])


upgrade(gru, below=7)(plain_outputs)
