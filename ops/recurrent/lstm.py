"""Long short-term memory (Hochreiter and Schmidhuber 1997) with peepholes: gates i, o, f and c, in this order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.ir.op import Tolerance, Trait, case, op, upgrade
from ..elementwise.declare import quiet
from ..rules.precision import widened
from ..rules.shape_rules import shape_error
from .recurrent import (
    Activation,
    Cell,
    RecurrentAttributes,
    clipper,
    functions,
    halves,
    infer_recurrent,
    plain_outputs,
    sequences,
)

LENGTHS = np.array([3, 5], np.int32)


@op(
    "LSTM",
    since=22,
    types="T=float T T T i32 T T T -> 3",
    traits=(Trait.MIXES_POSITIONS, Trait.PRODUCT),
    weights={1: 1, 2: 1},
    infer=infer_recurrent,
    tolerance=Tolerance(1e-5, 1e-5),
    examples=[
        case(
            "f32[5,2,3]",
            "f32[1,16,3]",
            "f32[1,16,4]",
            "f32[1,32]",
            None,
            "f32[1,2,4]",
            "f32[1,2,4]",
            hidden_size=4,
            outputs=3,
        ),
        case(
            "f32[5,2,3]",
            "f32[2,16,3]",
            "f32[2,16,4]",
            "f32[2,32]",
            LENGTHS,
            "f32[2,2,4]",
            "f32[2,2,4]",
            "f32[2,12]",
            hidden_size=4,
            direction="bidirectional",
            outputs=3,
        ),
        case(
            "f32[5,2,3]",
            "f32[1,16,3]",
            "f32[1,16,4]",
            "f32[1,32]",
            hidden_size=4,
            direction="reverse",
            clip=0.5,
            activations=["HardSigmoid", "Softsign", "ScaledTanh"],
            activation_alpha=[0.3, 0.9],
            activation_beta=[0.4, 0.7],
            outputs=3,
        ),
        case("f32[5,2,3]", "f32[1,16,3]", "f32[1,16,4]", hidden_size=4, input_forget=1, outputs=3),
        case("f32[2,5,3]", "f32[1,16,3]", "f32[1,16,4]", hidden_size=4, layout=1, outputs=3),
        case("f32[5,2,3]", "f32[1,16,3]", "f32[1,16,4]", None, LENGTHS, hidden_size=4, direction="reverse", outputs=3),
    ],
)
@quiet
@widened
def lstm(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    sequence_lens: np.ndarray | None = None,
    initial_h: np.ndarray | None = None,
    initial_c: np.ndarray | None = None,
    p: np.ndarray | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[np.ndarray, ...]:
    """Hidden states at every time, the last one and the last cell state, see `infer_recurrent` for shapes.

    Where `input_forget`, what is not forgotten is taken in: f = 1 - i.
    """
    run = sequences(RecurrentAttributes("LSTM", 4, direction, hidden_size, layout), x, w, r, b, sequence_lens)
    forward_bias, recurrent_bias = halves(b, w)
    applied = functions(
        activations or ["Sigmoid", "Tanh", "Tanh"] * len(w), activation_alpha, activation_beta, 3 * len(w), "LSTM"
    )

    def projected(index: int) -> np.ndarray:
        made: np.ndarray = run.x @ w[index].T + (forward_bias[index] + recurrent_bias[index])
        return made

    def recurrent(index: int) -> Activation:
        transposed = r[index].T
        return lambda h: h @ transposed

    cells = [
        cell_of(
            recurrent(index), applied[3 * index : 3 * index + 3], _peepholes(p, index, w, r), clip, bool(input_forget)
        )
        for index in range(len(w))
    ]
    return run.run(cells, projected, [run.state(initial_h, r.shape[2]), run.state(initial_c, r.shape[2])])


def _peepholes(p: np.ndarray | None, index: int, w: np.ndarray, r: np.ndarray) -> np.ndarray | None:
    """Peepholes of a direction, [3, hidden]."""
    if p is not None and p.shape != (len(w), 3 * r.shape[2]):
        raise shape_error("LSTM", f"peepholes of shape {p.shape} where {(len(w), 3 * r.shape[2])} is needed")
    return None if p is None else p[index].reshape(3, r.shape[2])


def cell_of(
    recurrent: Activation, applied: Sequence[Activation], p: np.ndarray | None, clip: float | None, input_forget: bool
) -> Cell:
    """A cell whose hidden state [batch, hidden] adds ``recurrent(h)`` to the gates."""
    (f, g, h_of), limit = applied, clipper(clip)
    peep_in, peep_out, peep_forget = (None, None, None) if p is None else p

    def gate(values: np.ndarray, peephole: np.ndarray | None, state: np.ndarray) -> np.ndarray:
        return f(limit(values if peephole is None else values + peephole * state))

    def step(added: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        i, o, forget, new = np.split(added + recurrent(h), 4, axis=1)
        taken = gate(i, peep_in, c)
        kept = 1 - taken if input_forget else gate(forget, peep_forget, c)
        state = kept * c + taken * g(limit(new))
        return gate(o, peep_out, state) * h_of(state), state

    return step


upgrade(lstm, below=7)(plain_outputs)
