"""Recurrent layers over [N, length, C], with Keras' weights: kernel, recurrent_kernel and bias of a cell."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from ....nn.functional.recurrent import Weights, layer
from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import as_tensor, zeros
from ....tensors.operations.joining import cat
from ..core import activations, initializers, regularizers
from ..core.layer import Layer
from .basic import as_float
from .regularization import dropped

__all__ = ["GRU", "LSTM", "SimpleRNN"]
GRU_ORDER = (1, 0, 2)
"""Indices of our gates (reset, update, new) among Keras' (update, reset, new)."""


class _Cell(Layer):
    """The weights of a recurrent layer."""

    def __init__(self, owner: Any, **options: Any) -> None:
        super().__init__(**options)
        vars(self)["owner"] = _Settings(owner)

    def build(self, input_shape: Any) -> None:
        own = vars(self)["owner"]
        width = own.gates * own.units
        names = ("kernel", "recurrent_kernel", "bias")
        shapes: list[tuple[int, ...]] = [(input_shape[-1], width), (own.units, width), own.bias_shape]
        initial = [
            *own.initial[:2],
            functools.partial(_forgetting, own.initial[2], own.units if own.forget_bias else 0),
        ]
        for name, shape, first, penalty in zip(names, shapes, initial, own.penalties, strict=True):
            made = None
            if own.use_bias or name != "bias":
                made = self.add_weight(shape, first, regularizer=penalty, name=name)
            setattr(self, name, made)


def _forgetting(initial: Any, units: int, shape: tuple[int, ...]) -> Tensor:
    """The first bias; that of the forget gate of this many units is 1."""
    array = initial(shape).array().copy()
    array[units : 2 * units] = 1
    return as_tensor(array)


class _Settings:
    """Settings of a layer that its cell reads."""

    def __init__(self, owner: Any) -> None:
        self.units, self.gates, self.use_bias = owner.units, owner.gates, owner.use_bias
        self.initial, self.penalties, self.bias_shape = owner.initial, owner.penalties, owner.bias_shape
        self.forget_bias = owner.forget_bias


class _Recurrent(Layer):
    """Base of recurrent layers.

    Attributes:
        mode: the kind of cell, as in `nn.functional.recurrent`.
        cell: holds the weights.
    """

    mode: ClassVar[str] = ""
    gates: ClassVar[int] = 1
    forget_bias = False

    def _prepare(self, units: int, use_bias: bool, initial: tuple[Any, ...], penalties: tuple[Any, ...]) -> None:
        self.units, self.use_bias = int(units), use_bias
        self.initial = [initializers.get(each) for each in initial]
        self.penalties = [regularizers.get(each) for each in penalties]
        self.cell = _Cell(self, name=f"{self.name}_cell")

    def _form(self, sequences: bool, state: bool, backwards: bool, dropout: float, recurrent_dropout: float) -> None:
        self.return_sequences, self.return_state, self.go_backwards = sequences, state, backwards
        self.dropout = dropout
        self.require("recurrent_dropout", recurrent_dropout, (0, 0.0))

    @property
    def bias_shape(self) -> tuple[int, ...]:
        """The shape of the bias."""
        return (self.gates * self.units,)

    def _kind(self) -> str:
        return self.mode

    def _weights(self) -> Weights:
        cell = self.cell
        other = None if cell.bias is None else zeros(*cell.bias.shape, dtype=cell.bias.dtype)
        return Weights(cell.kernel.T, cell.recurrent_kernel.T, cell.bias, other)

    def build(self, input_shape: Any) -> None:
        shape = input_shape[0] if isinstance(input_shape, list) else input_shape
        self.cell.build(shape)
        self.cell.built = True

    def call(self, sequences: Any, initial_state: Any = None, mask: Any = None) -> Any:
        """Hidden states, or the last one, with the states if they are asked for.

        Args:
            initial_state: [N, units], of LSTM a pair; zeros by default.
        """
        self.require("mask", mask, (None,))
        if isinstance(sequences, list | tuple):
            sequences, *initial_state = sequences
        x = as_float(sequences, self.cell.kernel)
        if self.training and self.dropout:
            x = dropped(x, self.dropout, (x.shape[0], 1, x.shape[2]))
        x = x.transpose(0, 1)
        x = x.flip(0) if self.go_backwards else x
        count = 2 if self.mode == "LSTM" else 1
        if initial_state is None or initial_state == []:
            first = [zeros(x.shape[1], self.units, dtype=x.dtype) for _ in range(count)]
        else:
            first = list(initial_state) if isinstance(initial_state, list | tuple) else [initial_state]
        found, last = layer(self._kind(), x, tuple(each.unsqueeze(0) for each in first), [self._weights()])
        output = found.transpose(0, 1) if self.return_sequences else last[0][0]
        return [output, *(each[0] for each in last)] if self.return_state else output


class LSTM(_Recurrent):
    """Long short-term memory; gates in the order input, forget, cell, output."""

    mode = "LSTM"
    gates = 4

    def __init__(
        self, units: int, activation: Any = "tanh", recurrent_activation: Any = "sigmoid", use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform", recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros", unit_forget_bias: bool = True, kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None, bias_regularizer: Any = None, dropout: float = 0.0,
        recurrent_dropout: float = 0.0, return_sequences: bool = False, return_state: bool = False,
        go_backwards: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        self.require("activation", activations.get(activation), (activations.tanh,))
        self.require("recurrent_activation", activations.get(recurrent_activation), (activations.sigmoid,))
        self.forget_bias = bool(unit_forget_bias)
        penalties = (kernel_regularizer, recurrent_regularizer, bias_regularizer)
        self._form(return_sequences, return_state, go_backwards, dropout, recurrent_dropout)
        self._prepare(units, use_bias, (kernel_initializer, recurrent_initializer, bias_initializer), penalties)


class GRU(_Recurrent):
    """Gated recurrent units; gates in the order update, reset, new. The reset gate comes after the product with the
    recurrent kernel (Keras' ``reset_after``)."""

    mode = "GRU"
    gates = 3

    def __init__(
        self, units: int, activation: Any = "tanh", recurrent_activation: Any = "sigmoid", use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform", recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros", kernel_regularizer: Any = None, recurrent_regularizer: Any = None,
        bias_regularizer: Any = None, dropout: float = 0.0, recurrent_dropout: float = 0.0,
        return_sequences: bool = False, return_state: bool = False, go_backwards: bool = False,
        reset_after: bool = True, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        self.require("activation", activations.get(activation), (activations.tanh,))
        self.require("recurrent_activation", activations.get(recurrent_activation), (activations.sigmoid,))
        self.require("reset_after", reset_after, (True,))
        penalties = (kernel_regularizer, recurrent_regularizer, bias_regularizer)
        self._form(return_sequences, return_state, go_backwards, dropout, recurrent_dropout)
        self._prepare(units, use_bias, (kernel_initializer, recurrent_initializer, bias_initializer), penalties)

    @property
    def bias_shape(self) -> tuple[int, ...]:
        """One row for the input, and one for the hidden state."""
        return 2, self.gates * self.units

    def _weights(self) -> Weights:
        cell = self.cell
        both = (None, None) if cell.bias is None else (_in_order(cell.bias[0]), _in_order(cell.bias[1]))
        return Weights(_in_order(cell.kernel.T), _in_order(cell.recurrent_kernel.T), *both)


class SimpleRNN(_Recurrent):
    """Recurrence by tanh or relu."""

    mode = "RNN"

    def __init__(
        self, units: int, activation: Any = "tanh", use_bias: bool = True, kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal", bias_initializer: Any = "zeros", kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None, bias_regularizer: Any = None, dropout: float = 0.0,
        recurrent_dropout: float = 0.0, return_sequences: bool = False, return_state: bool = False,
        go_backwards: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        self.activation = activations.get(activation)
        self.require("activation", self.activation, (activations.tanh, activations.relu))
        penalties = (kernel_regularizer, recurrent_regularizer, bias_regularizer)
        self._form(return_sequences, return_state, go_backwards, dropout, recurrent_dropout)
        self._prepare(units, use_bias, (kernel_initializer, recurrent_initializer, bias_initializer), penalties)

    def _kind(self) -> str:
        return "RNN_TANH" if self.activation is activations.tanh else "RNN_RELU"


def _in_order(x: Tensor) -> Tensor:
    """Gates along the first dim in our order."""
    parts = x.chunk(len(GRU_ORDER), 0)
    return cat([parts[each] for each in GRU_ORDER])
