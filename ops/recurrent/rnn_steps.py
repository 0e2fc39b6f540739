"""RNNSteps and RNNStepsGrad: the time steps of a simple recurrence in training; as those of an LSTM (`lstm_steps`)."""

from __future__ import annotations

from ...runtime.ir.domain import CANDLE
from ...runtime.ir.op import Undecomposable, case
from ...runtime.ir.shape_inference import Inference
from ..rules.decomposition import composed
from ..rules.expression import Term
from .steps import LENGTHS, infer_states, order_of_times, running, stacked, where_running

ACTIVATIONS = ("Tanh", "Relu")


def _infer(node: Inference) -> None:
    infer_states(node, 2)


def _checked(activation: str) -> str:
    if activation not in ACTIVATIONS:
        raise Undecomposable(f"activation {activation!r} is not one of {', '.join(ACTIVATIONS)}")
    return activation


@composed(
    "RNNSteps",
    CANDLE,
    types="T=float T T i32",
    infer=_infer,
    examples=[
        case("f32[3,2,5]", "f32[5,5]", "f32[2,5]"),
        case("f32[3,2,5]", "f32[5,5]", "f32[2,5]", LENGTHS, reverse=1, activation="Relu"),
    ],
)
def rnn_steps(
    added: Term, r: Term, h: Term, lengths: Term | None = None, *, activation: str = "Tanh", reverse: int = 0
) -> Term:
    """Hidden states [times, batch, hidden] of a simple recurrence. After its end a sequence keeps its state.

    Args:
        added: what the inputs add before the activation, [times, batch, hidden].
        r: the weight of the hidden state, [hidden, hidden].
        h: the first state, [batch, hidden].
        lengths: of the sequences, i32 [batch]; all have `times` steps where it is absent.
        activation: Tanh or Relu.
        reverse: 1 to begin with the last time.
    """
    weights, name = r.transposed([1, 0]), _checked(activation)
    times = added.lengths[0]
    found = [h] * times
    for time in order_of_times(times, reverse):
        following = (added.entry(0, time) + h.call("MatMul", weights)).call(name)
        h = found[time] = where_running(running(lengths, time), following, h)
    return stacked(found)


def _infer_grad(node: Inference) -> None:
    node.set(0, node.dtype(0), node.shape(0))
    states, r = node.shape(0), node.shape(1)
    node.set(1, node.dtype(0), None if states is None or r is None else (states[1], r[1]))


@composed(
    "RNNStepsGrad",
    CANDLE,
    types="T=float T T i32 -> 2",
    infer=_infer_grad,
    examples=[
        case("f32[3,2,5]", "f32[5,5]", "f32[3,2,5]", outputs=2),
        case("f32[3,2,5]", "f32[5,5]", "f32[3,2,5]", LENGTHS, reverse=1, activation="Relu", outputs=2),
    ],
)
def rnn_steps_grad(
    hidden: Term, r: Term, by_hidden: Term, lengths: Term | None = None, *, activation: str = "Tanh", reverse: int = 0
) -> tuple[Term, Term]:
    """The gradients by `added` and h of RNNSteps.

    Args:
        hidden: the output of RNNSteps; by_hidden: its gradient.
        r, lengths, activation, reverse: as RNNSteps has them.
    """
    order, name = order_of_times(hidden.lengths[0], reverse), _checked(activation)
    by_added = [hidden] * len(order)
    by_h = by_hidden.entry(0, order[-1]).filled(0)
    for time in reversed(order):
        state, runs = hidden.entry(0, time), running(lengths, time)
        by_h = by_h + by_hidden.entry(0, time)
        grads = by_h * (1 - state * state) if name == "Tanh" else (state > 0).where(by_h, 0)
        by_added[time] = where_running(runs, grads, 0)
        by_h = where_running(runs, grads.call("MatMul", r), by_h)
    return stacked(by_added), by_h
