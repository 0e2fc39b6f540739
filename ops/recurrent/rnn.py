"""RNN (Elman 1990): h = f(x W^T + h R^T + b)."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import Tolerance, Trait, case, op, upgrade
from ..elementwise.declare import quiet
from ..rules.precision import widened
from .recurrent import Cell, RecurrentAttributes, clipper, functions, halves, infer_recurrent, plain_outputs, sequences

LENGTHS = np.array([3, 5], np.int32)


@op(
    "RNN",
    since=22,
    types="T=float T T T i32 T -> 2",
    traits=(Trait.MIXES_POSITIONS, Trait.PRODUCT),
    weights={1: 1, 2: 1},
    infer=infer_recurrent,
    tolerance=Tolerance(1e-5, 1e-5),
    examples=[
        case("f32[5,2,3]", "f32[1,4,3]", "f32[1,4,4]", "f32[1,8]", None, "f32[1,2,4]", hidden_size=4, outputs=2),
        case(
            "f32[5,2,3]",
            "f32[2,4,3]",
            "f32[2,4,4]",
            "f32[2,8]",
            LENGTHS,
            hidden_size=4,
            direction="bidirectional",
            clip=0.5,
            outputs=2,
        ),
        case(
            "f32[5,2,3]",
            "f32[1,4,3]",
            "f32[1,4,4]",
            hidden_size=4,
            direction="reverse",
            activations=["Affine"],
            activation_alpha=[0.3],
            activation_beta=[0.1],
            outputs=2,
        ),
        case("f32[2,5,3]", "f32[1,4,3]", "f32[1,4,4]", hidden_size=4, layout=1, outputs=2),
        case("f32[0,2,3]", "f32[1,4,3]", "f32[1,4,4]", hidden_size=4, outputs=2),
    ],
)
@quiet
@widened
def rnn(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    sequence_lens: np.ndarray | None = None,
    initial_h: np.ndarray | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | tuple[str, ...] = ("Tanh", "Tanh"),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[np.ndarray, ...]:
    """Hidden states at every time and the last one, see `infer_recurrent` for shapes."""
    run = sequences(RecurrentAttributes("RNN", 1, direction, hidden_size, layout), x, w, r, b, sequence_lens)
    (forward_bias, recurrent_bias), limit = halves(b, w), clipper(clip)
    applied = functions(activations, activation_alpha, activation_beta, len(w), "RNN")

    def projected(index: int) -> np.ndarray:
        made: np.ndarray = run.x @ w[index].T + (forward_bias[index] + recurrent_bias[index])
        return made

    def cell(index: int) -> Cell:
        transposed, f = r[index].T, applied[index]
        return lambda added, h: (f(limit(added + h @ transposed)),)

    return run.run([cell(index) for index in range(len(w))], projected, [run.state(initial_h, r.shape[2])])


upgrade(rnn, below=7)(plain_outputs)
