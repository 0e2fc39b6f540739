"""LSTM, GRU and SimpleRNN over [N, length, C]: native recurrences where their settings are Keras' defaults."""

from __future__ import annotations

from typing import Any

from ....nn.functional.recurrent import Weights, layer
from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import arange, zeros
from ....tensors.operations.indexing import where
from ....tensors.operations.joining import cat
from ..core import activations
from .basic import as_float
from .cells import GRUCell, LSTMCell, SimpleRNNCell
from .regularization import dropped
from .rnn import RNN

__all__ = ["GRU", "LSTM", "SimpleRNN"]
GRU_ORDER = (1, 0, 2)
"""Indices of our gates (reset, update, new) among Keras' (update, reset, new)."""
OF_CELL = (
    "activation", "recurrent_activation", "use_bias", "kernel_initializer", "recurrent_initializer",
    "bias_initializer", "unit_forget_bias", "kernel_regularizer", "recurrent_regularizer", "bias_regularizer",
    "kernel_constraint", "recurrent_constraint", "bias_constraint", "dropout", "recurrent_dropout", "reset_after",
)  # fmt: skip
"""Settings of a recurrent layer that its cell has."""


class _Recurrent(RNN):
    """Base of recurrent layers with a cell of Keras."""

    through_options = (*RNN.through_options, "kernel_constraint", "recurrent_constraint", "bias_constraint")

    def _prepare(self, cell: Any, units: int, settings: dict[str, Any]) -> None:
        """Make the cell and the layer of the arguments of ``__init__``."""
        options = dict(settings.pop("options"))
        own = {name: each for name, each in {**settings, **options}.items() if name in OF_CELL}
        rest = {name: each for name, each in {**settings, **options}.items() if name not in OF_CELL}
        made = cell(units, **own, name="cell")
        super().__init__(made, **rest)
        made.name = f"{self.name}_cell"
        self.units = made.units

    def _kind(self) -> str | None:
        """The kind of native recurrence, as in `nn.functional.recurrent`; None for settings without one."""
        cell = self.cell
        usual = cell.activation is activations.tanh and cell.recurrent_activation is activations.sigmoid
        return type(self).__name__ if usual and getattr(cell, "reset_after", True) else None

    def _weights(self) -> Weights:
        cell = self.cell
        other = None if cell.bias is None else zeros(*cell.bias.shape, dtype=cell.bias.dtype)
        return Weights(cell.kernel.T, cell.recurrent_kernel.T, cell.bias, other)

    def call(self, sequences: Any, initial_state: Any = None, mask: Any = None) -> Any:
        """Hidden states, or the last one, with the states if they are asked for.

        Args:
            initial_state: [N, units], of LSTM a pair; zeros by default.
            mask: true where a step counts, [N, length]; others leave the states as they are.
        """
        kind = self._kind()
        if kind is None or (self.training and self.cell.recurrent_dropout):
            return super().call(sequences, initial_state, mask)
        given, states, mask = self.started(sequences, initial_state, mask)
        x = as_float(given, self.cell.kernel)
        if self.training and self.cell.dropout:
            x = dropped(x, self.cell.dropout, (x.shape[0], 1, x.shape[2]))
        first = tuple(each.to(x.dtype).unsqueeze(0) for each in states)
        if mask is None:
            found, last = layer(kind, x.transpose(0, 1), first, [self._weights()])
            output = found.transpose(0, 1) if self.return_sequences else last[0][0]
        else:
            found, last = self._masked(kind, x.transpose(0, 1), first, mask.transpose(0, 1))
            output = found.transpose(0, 1) if self.return_sequences else found[-1]
        return [output, *(each[0] for each in last)] if self.return_state else output

    def _masked(self, kind: str, x: Tensor, first: Any, mask: Tensor) -> tuple[Tensor, Any]:
        """Outputs [length, N, units] and last states: the steps whose mask is true are moved to the front of their
        sequence, which ends after them, and the outputs moved back."""
        length = x.shape[0]
        steps = arange(length).unsqueeze(1)
        order = where(mask, steps, steps + length).argsort(0)
        moved = x.gather(0, order.unsqueeze(-1).expand(x.shape))
        found, last = layer(kind, moved, first, [self._weights()], mask.long().sum(0))
        position = mask.long().cumsum(0) - 1
        shown = mask if self.zero_output_for_mask else position >= 0
        index = position.clamp(min=0).unsqueeze(-1).expand(found.shape)
        return where(shown.unsqueeze(-1), found.gather(0, index), 0), last


class LSTM(_Recurrent):
    """Long short-term memory; gates in the order input, forget, cell, output."""

    def __init__(
        self, units: int, activation: Any = "tanh", recurrent_activation: Any = "sigmoid", use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform", recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros", unit_forget_bias: bool = True, kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None, bias_regularizer: Any = None, dropout: float = 0.0,
        recurrent_dropout: float = 0.0, return_sequences: bool = False, return_state: bool = False,
        go_backwards: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        self._prepare(LSTMCell, units, _settings(locals()))


class GRU(_Recurrent):
    """Gated recurrent units; gates in the order update, reset, new. By default the reset gate comes after the product
    with the recurrent kernel (Keras' ``reset_after``)."""

    def __init__(
        self, units: int, activation: Any = "tanh", recurrent_activation: Any = "sigmoid", use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform", recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros", kernel_regularizer: Any = None, recurrent_regularizer: Any = None,
        bias_regularizer: Any = None, dropout: float = 0.0, recurrent_dropout: float = 0.0,
        return_sequences: bool = False, return_state: bool = False, go_backwards: bool = False,
        reset_after: bool = True, **options: Any,
    ) -> None:  # fmt: skip
        self._prepare(GRUCell, units, _settings(locals()))

    def _weights(self) -> Weights:
        cell = self.cell
        both = (None, None) if cell.bias is None else (_in_order(cell.bias[0]), _in_order(cell.bias[1]))
        return Weights(_in_order(cell.kernel.T), _in_order(cell.recurrent_kernel.T), *both)


class SimpleRNN(_Recurrent):
    """Recurrence by an activation of the input and the state."""

    def __init__(
        self, units: int, activation: Any = "tanh", use_bias: bool = True, kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal", bias_initializer: Any = "zeros", kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None, bias_regularizer: Any = None, dropout: float = 0.0,
        recurrent_dropout: float = 0.0, return_sequences: bool = False, return_state: bool = False,
        go_backwards: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        self._prepare(SimpleRNNCell, units, _settings(locals()))

    def _kind(self) -> str | None:
        kinds = {activations.tanh: "RNN_TANH", activations.relu: "RNN_RELU"}
        return kinds.get(self.cell.activation)


def _settings(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an ``__init__`` by its local names."""
    return {name: each for name, each in arguments.items() if name not in ("self", "units", "__class__")}


def _in_order(x: Tensor) -> Tensor:
    """Gates along the first dim in our order."""
    parts = x.chunk(len(GRU_ORDER), 0)
    return cat([parts[each] for each in GRU_ORDER])
