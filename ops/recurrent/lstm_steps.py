"""LSTMSteps and LSTMStepsGrad: the time steps of an LSTM in training, with what the backward pass reads of them.

The forward pass keeps the activated gates and the cell states of all times, as cuDNN's reserve space does; the backward
pass goes through the times in the other order. Products of inputs with weights, and the gradients of weights, are
products of all times at once, outside of these operators.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.ir.op import case
from ...runtime.ir.shape_inference import Inference
from ..rules.decomposition import composed
from ..rules.domain import CANDLE
from ..rules.expression import Term

LENGTHS = np.array([3, 1], np.int32)


def stacked(parts: Sequence[Term]) -> Term:
    """Tensors of one shape along a new first axis."""
    first, *rest = [part.unsqueezed(0) for part in parts]
    return first.concatenated(*rest, axis=0)


def _four(gates: Term) -> list[Term]:
    """Gates [batch, 4 x hidden] one by one."""
    hidden = gates.lengths[-1] // 4
    return [gates.part(1, index * hidden, (index + 1) * hidden) for index in range(4)]


def _order(times: int, reverse: int) -> list[int]:
    return [*reversed(range(times))] if reverse else [*range(times)]


def _infer(node: Inference) -> None:
    added, state = node.shape(0), node.shape(2)
    if added is not None and len(added) != 3:
        node.fail(f"gates of shape {added}; they are of rank 3")
    hidden = None if state is None or len(state) != 2 else state[1]
    for index in (0, 1):
        node.set(index, node.dtype(0), None if added is None else (*added[:2], hidden))
    node.set(2, node.dtype(0), added)


@composed(
    "LSTMSteps",
    CANDLE,
    types="T=float T T T i32 -> 3",
    infer=_infer,
    examples=[
        case("f32[3,2,20]", "f32[20,5]", "f32[2,5]", "f32[2,5]", outputs=3),
        case("f32[3,2,20]", "f32[20,5]", "f32[2,5]", "f32[2,5]", LENGTHS, reverse=1, outputs=3),
    ],
)
def lstm_steps(
    added: Term, r: Term, h: Term, c: Term, lengths: Term | None = None, *, reverse: int = 0
) -> tuple[Term, Term, Term]:
    """Hidden and cell states [times, batch, hidden] and activated gates [times, batch, 4 x hidden] of an LSTM; gates
    are in torch's order: input, forget, cell, output. Behind its end a sequence keeps its states.

    Args:
        added: what the inputs add to the gates, [times, batch, 4 x hidden].
        r: the weight of the hidden state, [4 x hidden, hidden].
        h, c: first states, [batch, hidden].
        lengths: of the sequences, i32 [batch]; all have `times` steps where it is absent.
        reverse: 1 to begin with the last time.
    """
    weights = r.transposed([1, 0])
    times = added.lengths[0]
    found: list[tuple[Term, Term, Term]] = [(h, c, added)] * times
    for time in _order(times, reverse):
        i, f, g, o = _four(added.entry(0, time) + h.call("MatMul", weights))
        i, f, g, o = i.call("Sigmoid"), f.call("Sigmoid"), g.call("Tanh"), o.call("Sigmoid")
        state = f * c + i * g
        following = o * state.call("Tanh"), state
        if lengths is not None:
            runs = (lengths > time).unsqueezed(1)
            following = runs.where(following[0], h), runs.where(state, c)
        h, c = following
        found[time] = h, c, i.concatenated(f, g, o, axis=1)
    hidden, cells, gates = zip(*found, strict=True)
    return stacked(hidden), stacked(cells), stacked(gates)


def _infer_grad(node: Inference) -> None:
    node.set(0, node.dtype(0), node.shape(0))
    for index in (1, 2):
        node.set(index, node.dtype(0), node.shape(2))


@composed(
    "LSTMStepsGrad",
    CANDLE,
    types="T=float T T T T T T i32 -> 3",
    infer=_infer_grad,
    examples=[
        case("f32[3,2,20]", "f32[3,2,5]", "f32[2,5]", "f32[20,5]", "f32[3,2,5]", outputs=3),
        case(
            *("f32[3,2,20]", "f32[3,2,5]", "f32[2,5]", "f32[20,5]", "f32[3,2,5]", "f32[3,2,5]", "f32[3,2,20]"),
            LENGTHS,
            reverse=1,
            outputs=3,
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
    *,
    reverse: int = 0,
) -> tuple[Term, Term, Term]:
    """The gradients by `added`, h and c of LSTMSteps.

    Args:
        gates, cells: outputs of LSTMSteps.
        by_hidden, by_cells, by_gates: gradients of its outputs.
        c, r, lengths, reverse: as LSTMSteps has them.
    """
    order = _order(gates.lengths[0], reverse)
    by_added: list[Term] = [gates] * len(order)
    by_h, by_c = c.filled(0), c.filled(0)
    for turn in reversed(range(len(order))):
        time = order[turn]
        i, f, g, o = _four(gates.entry(0, time))
        before = cells.entry(0, order[turn - 1]) if turn else c
        size = cells.entry(0, time).call("Tanh")
        by_h = by_h + by_hidden.entry(0, time)
        if by_cells is not None:
            by_c = by_c + by_cells.entry(0, time)
        through = by_c + by_h * o * (1 - size * size)
        by_i, by_f, by_g, by_o = through * g, through * before, through * i, by_h * size
        if by_gates is not None:
            more = _four(by_gates.entry(0, time))
            by_i, by_f, by_g, by_o = (one + other for one, other in zip((by_i, by_f, by_g, by_o), more, strict=True))
        grads = (by_i * i * (1 - i)).concatenated(by_f * f * (1 - f), by_g * (1 - g * g), by_o * o * (1 - o), axis=1)
        following = grads.call("MatMul", r), through * f
        if lengths is not None:
            runs = (lengths > time).unsqueezed(1)
            grads = runs.where(grads, 0)
            following = runs.where(following[0], by_h), runs.where(following[1], by_c)
        by_added[time], (by_h, by_c) = grads, following
    return stacked(by_added), by_h, by_c
