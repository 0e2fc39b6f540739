"""GRUSteps and GRUStepsGrad: the time steps of a GRU in training, with what the backward pass reads of them.

As those of an LSTM (`lstm_steps`): the forward pass keeps the gates of all times. The reset gate is applied after the
product of the state, as torch and cuDNN do.
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
    added, state = node.shape(0), node.shape(2)
    hidden = state[1] if state is not None and len(state) == 2 else None
    wide = 4 * hidden if isinstance(hidden, int) else None
    node.set(1, node.dtype(0), None if added is None else (*added[:2], wide))


@composed(
    "GRUSteps",
    CANDLE,
    types="T=float T T T i32 -> 2",
    infer=_infer,
    examples=[
        case("f32[3,2,15]", "f32[15,5]", "f32[2,5]", outputs=2),
        case("f32[3,2,15]", "f32[15,5]", "f32[2,5]", "f32[15]", LENGTHS, reverse=1, outputs=2),
    ],
)
def gru_steps(
    added: Term, r: Term, h: Term, bias: Term | None = None, lengths: Term | None = None, *, reverse: int = 0
) -> tuple[Term, Term]:
    """Hidden states [times, batch, hidden] of a GRU, and [times, batch, 4 x hidden]: activated gates in torch's order,
    reset, update and new, and what the reset gate was applied to. After its end a sequence keeps its state.

    Args:
        added: what the inputs add to the gates, [times, batch, 3 x hidden].
        r, bias: the weight of the hidden state, [3 x hidden, hidden], and what is added to that product.
        h: the first state, [batch, hidden].
        lengths: of the sequences, i32 [batch]; all have `times` steps where it is absent.
        reverse: 1 to begin with the last time.
    """
    weights = r.transposed([1, 0])
    times = added.lengths[0]
    found: list[tuple[Term, Term]] = [(h, added)] * times
    for time in order_of_times(times, reverse):
        product = h.call("MatMul", weights)
        inputs = split_gates(added.entry(0, time), 3)
        states = split_gates(product if bias is None else product + bias, 3)
        reset, update = ((one + other).call("Sigmoid") for one, other in zip(inputs[:2], states[:2], strict=True))
        new = (inputs[2] + reset * states[2]).call("Tanh")
        h = where_running(running(lengths, time), new + update * (h - new), h)
        found[time] = h, reset.concatenated(update, new, states[2], axis=1)
    hidden, gates = zip(*found, strict=True)
    return stacked(hidden), stacked(gates)


def _infer_grad(node: Inference) -> None:
    states, r = node.shape(1), node.shape(3)
    for index in (0, 1):
        node.set(index, node.dtype(0), None if states is None or r is None else (*states[:2], r[0]))
    node.set(2, node.dtype(0), node.shape(2))


@composed(
    "GRUStepsGrad",
    CANDLE,
    types="T=float T T T T T i32 -> 3",
    infer=_infer_grad,
    examples=[
        case("f32[3,2,20]", "f32[3,2,5]", "f32[2,5]", "f32[15,5]", "f32[3,2,5]", outputs=3),
        case(
            *("f32[3,2,20]", "f32[3,2,5]", "f32[2,5]", "f32[15,5]", "f32[3,2,5]", "f32[3,2,20]", LENGTHS),
            reverse=1,
            outputs=3,
        ),
    ],
)
def gru_steps_grad(
    gates: Term,
    hidden: Term,
    h: Term,
    r: Term,
    by_hidden: Term,
    by_gates: Term | None = None,
    lengths: Term | None = None,
    *,
    reverse: int = 0,
) -> tuple[Term, Term, Term]:
    """The gradients by `added`, by the products of states with r [times, batch, 3 x hidden], and by h of GRUSteps.

    Args:
        gates, hidden: outputs of GRUSteps.
        by_hidden, by_gates: gradients of its outputs.
        h, r, lengths, reverse: as GRUSteps has them.
    """
    order = order_of_times(gates.lengths[0], reverse)
    by_added: list[Term] = [gates] * len(order)
    by_product: list[Term] = [gates] * len(order)
    by_h = h.filled(0)
    for turn in reversed(range(len(order))):
        time = order[turn]
        reset, update, new, inner = split_gates(gates.entry(0, time), 4)
        before = hidden.entry(0, order[turn - 1]) if turn else h
        by_h = by_h + by_hidden.entry(0, time)
        by_update, by_new = by_h * (before - new), by_h * (1 - update)
        more = None if by_gates is None else split_gates(by_gates.entry(0, time), 4)
        if more is not None:
            by_update, by_new = by_update + more[1], by_new + more[2]
        by_new = by_new * (1 - new * new)
        by_reset, by_inner = by_new * inner, by_new * reset
        if more is not None:
            by_reset, by_inner = by_reset + more[0], by_inner + more[3]
        opened = (by_reset * reset * (1 - reset)).concatenated(by_update * update * (1 - update), axis=1)
        product = opened.concatenated(by_inner, axis=1)
        runs = running(lengths, time)
        by_added[time] = where_running(runs, opened.concatenated(by_new, axis=1), 0)
        by_product[time] = where_running(runs, product, 0)
        by_h = where_running(runs, by_h * update + product.call("MatMul", r), by_h)
    return stacked(by_added), stacked(by_product), by_h
