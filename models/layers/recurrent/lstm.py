"""LSTM (Hochreiter and Schmidhuber 1997) with the weights of torch's module, in one direction or both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.base.errors import FormatError
from ....runtime.ir.graph import Value
from ...schema.computed_weights import computed, f32
from ..net import Net

GATES = (0, 3, 1, 2)
"""Indices in torch of the gates in ONNX's order: input, output, forget, cell."""
FORWARD, BIDIRECTIONAL = ("",), ("", "_reverse")
"""Endings of the names of weights, by direction."""


def lstm(net: Net, x: Value, name: str, directions: Sequence[str] = FORWARD, layer: int = 0) -> Value:
    """One layer over [length, batch, channels]: [length, batch, directions x hidden], the directions side by side."""
    hidden, given = _weights(net, name, [f"_l{layer}{end}" for end in directions])
    direction = "bidirectional" if len(directions) == 2 else "forward"
    y = net.LSTM(x, *given, hidden_size=hidden, direction=direction)
    if len(directions) == 1:
        value: Value = net.Squeeze(y, [1])
        return value
    return net.merge_heads(net.Transpose(y, perm=[0, 2, 1, 3]))


def lstm_cell(
    net: Net, x: Value, name: str, hidden_state: Value, cell_state: Value, *, layer: int | None = None
) -> tuple[Value, Value, Value]:
    """torch's LSTMCell, or a `layer` of its LSTM, over [length, batch, channels] from a state, [1, batch, hidden] each:
    the results [length, batch, hidden], and the state after them."""
    hidden, given = _weights(net, name, ["" if layer is None else f"_l{layer}"])
    y, last, cell = net.LSTM(x, *given, None, hidden_state, cell_state, hidden_size=hidden, outputs=3)
    return net.Squeeze(y, [1]), last, cell


def _weights(net: Net, name: str, ends: Sequence[str]) -> tuple[int, list[Value]]:
    """The width of the state, and the weights and biases of the directions, whose names have these ends."""
    hidden = net.tensor(f"{name}.weight_hh{ends[0]}").shape[1]
    first, recurrent = (_stacked(net, f"{name}.weight_{part}", ends, hidden) for part in ("ih", "hh"))
    biases = np.stack(
        [
            np.concatenate([_reordered(net.array(f"{name}.bias_{part}{end}"), hidden) for part in ("ih", "hh")])
            for end in ends
        ]
    )
    return hidden, [first, recurrent, net.named(f"{name}.bias{ends[0]}", biases)]


def _stacked(net: Net, name: str, ends: Sequence[str], hidden: int) -> Value:
    """The weights of the directions, [directions, 4 x hidden, channels], in ONNX's order of gates."""
    tensors = [f32(net.tensor(name + end)) for end in ends]
    shape = len(tensors), *tensors[0].shape
    if any(tensor.shape != (len(GATES) * hidden, shape[2]) for tensor in tensors):
        why = f"{name} of the shape {list(tensors[0].shape)} is not the weight of an LSTM with a state of {hidden}"
        raise FormatError("E-ARCH-SHAPE", None, why, expected=f"[{len(GATES) * hidden}, channels]")
    return net.named(
        name + ends[0], computed(shape, lambda: np.stack([_reordered(each.numpy(), hidden) for each in tensors]))
    )


def _reordered(values: np.ndarray, hidden: int) -> np.ndarray:
    parts = values.reshape(len(GATES), hidden, -1)
    return np.asarray(parts[list(GATES)].reshape(values.shape))
