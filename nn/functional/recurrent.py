"""Recurrent cells and layers in torch's order of gates.

Without gradients a layer is one operator; with them each direction's time steps are one, whose gradient is another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...ops.recurrent.gru_steps import gru_steps
from ...ops.recurrent.lstm_steps import lstm_steps
from ...ops.recurrent.rnn_steps import rnn_steps
from ...tensors.core.expression import apply_all, leaf, op_named, shape_error
from ...tensors.core.grad_mode import is_grad_enabled
from ...tensors.core.tensor import Tensor
from ...tensors.operations.joining import cat, stack
from .linear import linear

GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
"""Gates of each kind of cell."""
ORDERS = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN_TANH": (0,), "RNN_RELU": (0,)}
"""The position in torch's order of each gate in ONNX's."""
OPERATORS = {"LSTM": "LSTM", "GRU": "GRU", "RNN_TANH": "RNN", "RNN_RELU": "RNN"}


class Weights(NamedTuple):
    """The weights of one direction of a layer: of the input, the hidden state, their biases, and the projection."""

    ih: Tensor
    hh: Tensor
    bias_ih: Tensor | None = None
    bias_hh: Tensor | None = None
    hr: Tensor | None = None


State = tuple[Tensor, ...]
"""The hidden state [N, hidden]; of LSTM also the cell state."""


def _step(kind: str, added: Tensor, state: State, weights: Weights) -> State:
    """The next state; `added` [N, gates] is what the input adds to the gates."""
    h = state[0]
    if kind == "GRU":
        r, z, n = added.chunk(3, -1)
        hr, hz, hn = linear(h, weights.hh, weights.bias_hh).chunk(3, -1)
        update = (z + hz).sigmoid()
        new = (n + (r + hr).sigmoid() * hn).tanh()
        return (new + update * (h - new),)
    gates = added + h @ weights.hh.T
    if kind != "LSTM":
        return (gates.tanh() if kind == "RNN_TANH" else gates.relu(),)
    i, f, g, o = gates.chunk(4, -1)
    c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    return (h if weights.hr is None else h @ weights.hr.T), c


def _added(kind: str, input: Tensor, weights: Weights) -> Tensor:
    """Input contributions [..., width] to the gates. In GRU the bias of the hidden state belongs to its own product."""
    bias = weights.bias_ih
    if bias is not None and weights.bias_hh is not None and kind != "GRU":
        bias = bias + weights.bias_hh
    return linear(input, weights.ih, bias)


def _direction(
    kind: str, x: Tensor, state: State, weights: Weights, lengths: np.ndarray | Tensor | None, backwards: bool
) -> tuple[Tensor, State]:
    """Hidden states [T, N, hidden] of inputs [T, N, width], and the last state; after its end the state of a sequence
    stays as it is."""
    added = _added(kind, x, weights)
    ends = None if lengths is None else _as_ends(lengths)
    options: dict[str, Any] = {"reverse": int(backwards)}
    if kind == "LSTM":
        inputs, operator, outputs = [added, weights.hh, *state, ends, weights.hr], lstm_steps, 3
    elif kind == "GRU":
        inputs, operator, outputs = [added, weights.hh, *state, weights.bias_hh, ends], gru_steps, 2
    else:
        inputs, operator, outputs = [added, weights.hh, *state, ends], rnn_steps, 1
        options["activation"] = _activation(kind)
    expressions = [None if each is None else each.expression for each in inputs]
    every = [Tensor(each) for each in apply_all(operator, expressions, options, outputs)]
    last = 0 if backwards else -1
    return every[0], tuple(each[last] for each in every[: len(state)])


def _as_ends(lengths: np.ndarray | Tensor) -> Tensor:
    """Lengths as the operators take them, i32 [N]."""
    return lengths.to("i32") if isinstance(lengths, Tensor) else Tensor(leaf(lengths.astype(np.int32)))


def _activation(kind: str) -> str:
    """The name in ONNX of what RNN_TANH and RNN_RELU apply."""
    return kind.removeprefix("RNN_").title()


def _in_order(kind: str, x: Tensor) -> Tensor:
    """Gates along the first dim in ONNX's order."""
    order = ORDERS[kind]
    if len(order) == 1:
        return x
    parts = x.chunk(len(order), 0)
    return cat([parts[index] for index in order])


def _operator(
    kind: str, x: Tensor, state: State, directions: Sequence[Weights], lengths: np.ndarray | Tensor | None
) -> tuple[Tensor, State]:
    """A layer as one operator: x [T, N, width], states [directions, N, hidden]."""

    def joined(name: str) -> Tensor:
        return stack([_in_order(kind, getattr(weights, name)) for weights in directions])

    inputs: list[Tensor | None] = [x, joined("ih"), joined("hh"), None, None, *state]
    if lengths is not None:
        inputs[4] = _as_ends(lengths)
    if directions[0].bias_ih is not None:
        inputs[3] = cat([joined("bias_ih"), joined("bias_hh")], 1)
    hidden = directions[0].hh.shape[1]
    options: dict[str, Any] = {
        "hidden_size": hidden,
        "direction": "bidirectional" if len(directions) == 2 else "forward",
    }
    if kind == "GRU":
        options["linear_before_reset"] = 1
    elif kind != "LSTM":
        options["activations"] = [_activation(kind)] * len(directions)
    expressions = [None if each is None else each.expression for each in inputs]
    outputs = apply_all(op_named(OPERATORS[kind]), expressions, options, 1 + len(state))
    y, *last = [Tensor(output) for output in outputs]
    return y.transpose(1, 2).reshape(*y.shape[:1], y.shape[2], -1), tuple(last)


def layer(
    kind: str, x: Tensor, state: State, directions: Sequence[Weights], lengths: np.ndarray | Tensor | None = None
) -> tuple[Tensor, State]:
    """One layer: hidden states [T, N, directions * hidden] of inputs [T, N, width], and last states.

    Args:
        kind: "LSTM", "GRU", "RNN_TANH" or "RNN_RELU".
        state: first states [directions, N, hidden].
        directions: weights forwards, and backwards if there are two.
        lengths: of the sequences, i64 [N]; None if all have T steps. Hidden states after the end are of no meaning.
    """
    tensors = [x, *state, *[weight for weights in directions for weight in weights if weight is not None]]
    needs_grad = is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if not needs_grad and directions[0].hr is None and x.dtype.bits >= 32:
        return _operator(kind, x, state, directions, lengths)
    outputs, last = [], []
    for index, weights in enumerate(directions):
        output, end = _direction(kind, x, tuple(each[index] for each in state), weights, lengths, bool(index))
        outputs.append(output)
        last.append(end)
    return cat(outputs, -1), tuple(stack(list(each)) for each in zip(*last, strict=True))


def cell(kind: str, input: Tensor, state: State, weights: Weights) -> State:
    """The next state [N, hidden] of a cell."""
    gates, width = GATES[kind] * state[0].shape[-1], weights.ih.shape[1]
    if input.shape[-1] != width or weights.ih.shape[0] != gates:
        why = f"an input of shape {list(input.shape)} and a state of {list(state[0].shape)}"
        raise shape_error(f"{why} for a weight of shape {list(weights.ih.shape)}")
    return _step(kind, _added(kind, input, weights), state, weights)
