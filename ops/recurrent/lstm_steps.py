"""LSTMSteps and LSTMStepsGrad: the time steps of an LSTM in training, with what the backward pass reads of them.

The forward pass keeps the activated gates and the cell states of all times, as cuDNN's reserve space does; the backward
pass goes through the times in the other order. Products of inputs with weights, and the gradients of weights, are
products of all times at once, outside of these operators.
"""

from __future__ import annotations

from ...runtime.ir.domain import CANDLE
from ...runtime.ir.op import case
from ...runtime.ir.shape_inference import Inference
from ..rules.decomposition import composed
from ..rules.expression import Term
from .steps import LENGTHS, infer_states, order_of_times, running, split_gates, stacked, where_running


def _infer(node: Inference) -> None:
    infer_states(node, 2)
    added, cell = node.shape(0), node.shape(3)
    hidden = None if cell is None or len(cell) != 2 else cell[1]
    node.set(1, node.dtype(0), None if added is None else (*added[:2], hidden))
    node.set(2, node.dtype(0), added)


@composed(
    "LSTMSteps",
    CANDLE,
    types="T=float T T T i32 T -> 3",
    infer=_infer,
    examples=[
        case("f32[3,2,20]", "f32[20,5]", "f32[2,5]", "f32[2,5]", outputs=3),
        case("f32[3,2,20]", "f32[20,5]", "f32[2,5]", "f32[2,5]", LENGTHS, reverse=1, outputs=3),
        case("f32[3,2,20]", "f32[20,3]", "f32[2,3]", "f32[2,5]", LENGTHS, "f32[3,5]", outputs=3),
    ],
)
def lstm_steps(
    added: Term,
    r: Term,
    h: Term,
    c: Term,
    lengths: Term | None = None,
    projection: Term | None = None,
    *,
    reverse: int = 0,
) -> tuple[Term, Term, Term]:
    """Hidden states [times, batch, size], cell states [times, batch, hidden] and activated gates
    [times, batch, 4 x hidden] of an LSTM; gates are in torch's order: input, forget, cell, output. After its end a
    sequence keeps its states.

    Args:
        added: what the inputs add to the gates, [times, batch, 4 x hidden].
        r: the weight of the hidden state, [4 x hidden, size].
        h, c: first states, [batch, size] and [batch, hidden].
        lengths: of the sequences, i32 [batch]; all have `times` steps where it is absent.
        projection: makes hidden states of what the output gate lets through, [size, hidden]; where it is absent that is
            the hidden state.
        reverse: 1 to begin with the last time.
    """
    weights = r.transposed([1, 0])
    times = added.lengths[0]
    found: list[tuple[Term, Term, Term]] = [(h, c, added)] * times
    for time in order_of_times(times, reverse):
        i, f, g, o = split_gates(added.entry(0, time) + h.call("MatMul", weights), 4)
        i, f, g, o = i.call("Sigmoid"), f.call("Sigmoid"), g.call("Tanh"), o.call("Sigmoid")
        state = f * c + i * g
        following = o * state.call("Tanh")
        if projection is not None:
            following = following.call("MatMul", projection.transposed([1, 0]))
        runs = running(lengths, time)
        h, c = where_running(runs, following, h), where_running(runs, state, c)
        found[time] = h, c, i.concatenated(f, g, o, axis=1)
    hidden, cells, gates = zip(*found, strict=True)
    return stacked(hidden), stacked(cells), stacked(gates)


def _infer_grad(node: Inference) -> None:
    r, cell, states = node.shape(3), node.shape(2), node.shape(4)
    node.set(0, node.dtype(0), None if states is None or r is None else (*states[:2], r[0]))
    node.set(1, node.dtype(0), None if cell is None or r is None else (cell[0], r[1]))
    node.set(2, node.dtype(0), cell)
    node.set(3, node.dtype(0), states)


@composed(
    "LSTMStepsGrad",
    CANDLE,
    types="T=float T T T T T T i32 T -> 4",
    infer=_infer_grad,
    examples=[
        case("f32[3,2,20]", "f32[3,2,5]", "f32[2,5]", "f32[20,5]", "f32[3,2,5]", outputs=3),
        case(
            *("f32[3,2,20]", "f32[3,2,5]", "f32[2,5]", "f32[20,5]", "f32[3,2,5]", "f32[3,2,5]", "f32[3,2,20]"),
            LENGTHS,
            reverse=1,
            outputs=3,
        ),
        case(
            *("f32[3,2,20]", "f32[3,2,5]", "f32[2,5]", "f32[20,3]", "f32[3,2,3]", None, None, LENGTHS, "f32[3,5]"),
            outputs=4,
        ),
    ],
)
def lstm_steps_grad(
    gates: Term,
    cells: Term,
    c: Term,
    r: Term,
    by_hidden: Term,
    by_cells: Term | None = None,
    by_gates: Term | None = None,
    lengths: Term | None = None,
    projection: Term | None = None,
    *,
    reverse: int = 0,
) -> tuple[Term, Term, Term, Term]:
    """The gradients by `added`, h and c of LSTMSteps, and those by the hidden state of every time, which the times
    after it add to; they are 0 after the end of a sequence.

    Args:
        gates, cells: outputs of LSTMSteps.
        by_hidden, by_cells, by_gates: gradients of its outputs.
        c, r, lengths, projection, reverse: as LSTMSteps has them.
    """
    order = order_of_times(gates.lengths[0], reverse)
    by_added: list[Term] = [gates] * len(order)
    by_states: list[Term] = [gates] * len(order)
    by_h, by_c = by_hidden.entry(0, order[-1]).filled(0), c.filled(0)
    for turn in reversed(range(len(order))):
        time = order[turn]
        i, f, g, o = split_gates(gates.entry(0, time), 4)
        before = cells.entry(0, order[turn - 1]) if turn else c
        size = cells.entry(0, time).call("Tanh")
        by_h = by_h + by_hidden.entry(0, time)
        if by_cells is not None:
            by_c = by_c + by_cells.entry(0, time)
        by_let = by_h if projection is None else by_h.call("MatMul", projection)
        through = by_c + by_let * o * (1 - size * size)
        by_i, by_f, by_g, by_o = through * g, through * before, through * i, by_let * size
        if by_gates is not None:
            more = split_gates(by_gates.entry(0, time), 4)
            by_i, by_f, by_g, by_o = (one + other for one, other in zip((by_i, by_f, by_g, by_o), more, strict=True))
        grads = (by_i * i * (1 - i)).concatenated(by_f * f * (1 - f), by_g * (1 - g * g), by_o * o * (1 - o), axis=1)
        runs = running(lengths, time)
        by_added[time], by_states[time] = where_running(runs, grads, 0), where_running(runs, by_h, 0)
        by_h = where_running(runs, grads.call("MatMul", r), by_h)
        by_c = where_running(runs, through * f, by_c)
    return stacked(by_added), by_h, by_c, stacked(by_states)
