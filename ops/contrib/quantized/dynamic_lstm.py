"""DynamicQuantizeLSTM: an LSTM with 8-bit weights; inputs and hidden states are quantized at run time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....runtime.ir.domain import MICROSOFT
from ....runtime.ir.graph import Dim
from ....runtime.ir.op import Tolerance, case, op
from ....runtime.ir.shape_inference import Inference
from ....runtime.tensor.dtype import F32
from ...recurrent.recurrent import (
    DIRECTIONS,
    Activation,
    Cell,
    RecurrentAttributes,
    Sequences,
    clipper,
    functions,
    halves,
    sequences,
)
from ...rules.output_limit import allowed
from ...rules.shape_rules import shape_error
from .dynamic_matmul import dynamic_quantize_matmul
from .rational_activation import rational_sigmoid, rational_tanh


def _infer(node: Inference) -> None:
    x, r = node.shape(0), node.shape(2)
    hidden: Dim = node.attributes["hidden_size"] or (r[1] if r is not None else None)
    count = DIRECTIONS.get(node.attributes["direction"])
    length, batch = (x[0], x[1]) if x is not None and len(x) == 3 else (None, None)
    node.set(0, F32, (length, count, batch, hidden))
    for index in (1, 2):
        node.set(index, F32, (count, batch, hidden))


RATIONAL = {"sigmoid": rational_sigmoid, "tanh": rational_tanh}
FACTORS = np.array([0.02], np.float32), np.array([3], np.int8), np.array([0.03], np.float32), np.array([-2], np.int8)


@op(
    "DynamicQuantizeLSTM",
    MICROSOFT,
    types="f32 T=byte T f32 i32 f32 f32 f32 f32 T f32 T -> 3",
    infer=_infer,
    tolerance=Tolerance(1e-3, 1e-3),
    examples=[
        case(
            "f32[5,2,3]",
            "i8[1,3,16]",
            "i8[1,4,16]",
            "f32[1,32]",
            None,
            None,
            None,
            None,
            *FACTORS,
            hidden_size=4,
            outputs=3,
        ),
        case(
            "f32[5,2,3]",
            "i8[1,3,16]",
            "i8[1,4,16]",
            None,
            np.array([3, 5], np.int32),
            "f32[1,2,4]",
            "f32[1,2,4]",
            "f32[1,12]",
            *FACTORS,
            hidden_size=4,
            direction="reverse",
            outputs=3,
        ),
    ],
)
def dynamic_quantize_lstm(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None,
    sequence_lens: np.ndarray | None,
    initial_h: np.ndarray | None,
    initial_c: np.ndarray | None,
    p: np.ndarray | None,
    w_scale: np.ndarray,
    w_zero_point: np.ndarray,
    r_scale: np.ndarray,
    r_zero_point: np.ndarray,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
) -> tuple[np.ndarray, ...]:
    """As LSTM, with weights [directions, inputs, 4 x hidden]; scales and zero points [directions] or [directions, 4 x
    hidden].

    All inputs are quantized as one, and all hidden states of a turn, zero those of sequences that have ended;
    onnxruntime does so too on one thread, on more it splits the batch. The bias is added last, as there.
    """
    transposed_w, transposed_r = w.swapaxes(1, 2), r.swapaxes(1, 2)
    run = sequences(
        RecurrentAttributes("DynamicQuantizeLSTM", 4, direction, hidden_size, 0),
        x,
        transposed_w,
        transposed_r,
        b,
        sequence_lens,
    )
    count, hidden = len(w), r.shape[1]
    if p is not None and p.shape != (count, 3 * hidden):
        raise shape_error("DynamicQuantizeLSTM", f"peepholes of shape {p.shape} where {(count, 3 * hidden)} is needed")
    names = list(activations or ["Sigmoid", "Tanh", "Tanh"] * count)
    applied = functions(names, activation_alpha, activation_beta, 3 * count, "DynamicQuantizeLSTM")
    applied = [RATIONAL.get(name.lower(), function) for name, function in zip(names, applied, strict=False)]
    biases = np.add(*halves(b, transposed_w.astype(np.float32)))
    h, c = run.state(initial_h, hidden).copy(), run.state(initial_c, hidden).copy()
    y = np.zeros(allowed((*x.shape[:1], count, x.shape[1], hidden), 4, "DynamicQuantizeLSTM"), np.float32)
    product = dynamic_quantize_matmul.compute
    assert product is not None
    for at in range(count):
        cell = _cell(
            applied[3 * at : 3 * at + 3],
            biases[at],
            None if p is None else p[at].reshape(3, hidden),
            clip,
            bool(input_forget),
        )
        added = product(run.x, w[at], w_scale[at], w_zero_point[at])
        seen = h[at]
        for rows, times in _turns(run, at):
            gates = added[times, np.arange(len(times))] + product(seen, r[at], r_scale[at], r_zero_point[at])
            then_h, then_c = cell(gates, c[at])
            h[at, rows], c[at, rows] = then_h[rows], then_c[rows]
            y[times[rows], at, rows] = then_h[rows]
            seen = np.where(rows[:, None], h[at], np.float32(0))
    return y, h, c


def _turns(run: Sequences, at: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """One turn after another: the sequences that have not ended, and the time that each of them is at; all begin with
    the first turn."""
    length, batch = run.x.shape[:2]
    lengths = np.full(batch, length) if run.lengths is None else run.lengths
    for turn in range(length):
        times = lengths - 1 - turn if run.directions[at] == "reverse" else np.full(batch, turn)
        yield turn < lengths, np.maximum(times, 0)


def _cell(applied: list[Activation], bias: np.ndarray, p: np.ndarray | None, clip: float | None, coupled: bool) -> Cell:
    """From gates [batch, 4 x hidden] without their bias and cell states to the next hidden and cell states."""
    (f, g, h_of), limit = applied, clipper(clip)
    peep_in, peep_out, peep_forget = (None, None, None) if p is None else p
    bias_in, bias_out, bias_forget, bias_new = np.split(bias, 4)

    def gate(values: np.ndarray, peephole: np.ndarray | None, state: np.ndarray, more: np.ndarray) -> np.ndarray:
        return f(limit((values if peephole is None else values + peephole * state) + more))

    def step(gates: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        i, o, forget, new = np.split(gates, 4, axis=1)
        taken = gate(i, peep_in, c, bias_in)
        kept = 1 - taken if coupled else gate(forget, peep_forget, c, bias_forget)
        state = kept * c + taken * g(limit(new + bias_new))
        return gate(o, peep_out, state, bias_out) * h_of(state), state

    return step
