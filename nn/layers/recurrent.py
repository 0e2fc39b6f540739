"""Recurrent layers and cells with PyTorch's names of weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...tensors.core.expression import shape_error
from ...tensors.core.tensor import Tensor
from ...tensors.operations.creation import zeros
from ...tensors.operations.joining import cat
from .. import init
from ..core.module import Module
from ..core.parameter import Parameter
from ..functional.dropout import dropout
from ..functional.packed import PackedSequence, padded, repacked
from ..functional.recurrent import GATES, State, Weights, cell, layer

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNCell"]


class _Recurrent(Module):
    """Layers of cells over sequences.

    Attributes:
        mode: the kind of cell, as in `functional.recurrent`.
        weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0: [gates * hidden, width] and [gates * hidden] of the first
            layer; `_l1` of the second one, `_reverse` of the other direction; weight_hr_l0 of projections.
    """

    mode = ""

    def _prepare(
        self, input_size: int, hidden_size: int, num_layers: int, bias: bool, batch_first: bool, dropout: float,
        bidirectional: bool, options: tuple[int, Any, Any],
    ) -> None:  # fmt: skip
        proj_size, device, dtype = options
        if not 0 <= proj_size < max(1, hidden_size) or hidden_size < 1 or num_layers < 1:
            why = f"{num_layers} layers of {hidden_size} hidden elements, projected to {proj_size}"
            raise UsageError("E-NN-VALUE", None, why)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        gates, out = GATES[self.mode] * hidden_size, proj_size or hidden_size
        directions = 2 if bidirectional else 1
        for number in range(num_layers):
            width = input_size if number == 0 else out * directions
            for ending in self._endings(number):
                shapes: list[tuple[str, tuple[int, ...]]] = [("weight_ih", (gates, width)), ("weight_hh", (gates, out))]
                if bias:
                    shapes += [("bias_ih", (gates,)), ("bias_hh", (gates,))]
                if proj_size:
                    shapes.append(("weight_hr", (proj_size, hidden_size)))
                for name, shape in shapes:
                    parameter = Parameter(zeros(shape, dtype=dtype, device=device))
                    self.register_parameter(f"{name}{ending}", parameter)
        self.reset_parameters()

    def _endings(self, number: int) -> list[str]:
        return [f"_l{number}", f"_l{number}_reverse"][: 2 if self.bidirectional else 1]

    def reset_parameters(self) -> None:
        """Draw the parameters."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _weights(self, ending: str) -> Weights:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        return Weights(*[self._parameters.get(f"{name}{ending}") for name in names])  # type: ignore[arg-type]

    def flatten_parameters(self) -> None:
        """As torch has it; nothing has to be done."""

    def _first(self, batch: int, like: Tensor) -> tuple[Tensor, ...]:
        """States of zeros."""
        directions = (2 if self.bidirectional else 1) * self.num_layers
        hidden = zeros(directions, batch, self.proj_size or self.hidden_size, dtype=like.dtype)
        return (
            (hidden, zeros(directions, batch, self.hidden_size, dtype=like.dtype)) if self.mode == "LSTM" else (hidden,)
        )

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> tuple[Any, Any]:
        """Hidden states and last states.

        Args:
            input: [length, N, input_size], [N, length, input_size] with `batch_first`, or [length, input_size]; or a
                packed sequence, whose hidden states are one, too.
            hx: first states [layers * directions, N, hidden], zeros by default; of LSTM a pair.
        """
        if isinstance(input, PackedSequence):
            return self._of_packed(input, hx)
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            why = f"an input of shape {list(input.shape)}"
            raise shape_error(f"{type(self).__name__}: {why} where it is [length, N, {self.input_size}]")
        single = input.ndim == 2
        x = input.unsqueeze(1) if single else input.transpose(0, 1) if self.batch_first else input
        if not x.shape[0]:
            raise shape_error(f"{type(self).__name__}: a sequence of length 0")
        first = self._first(x.shape[1], x)
        if hx is not None:
            wanted = first
            first = tuple(hx) if self.mode == "LSTM" else (hx,)
            first = tuple(each.unsqueeze(1) if single else each for each in first)
            if [each.shape for each in first] != [each.shape for each in wanted]:
                shapes = " and ".join(str(list(each.shape)) for each in wanted)
                raise shape_error(f"{type(self).__name__}: first states are of shape {shapes}")
        x, ends = self._layers(x, first, None)
        if single:
            x, ends = x.squeeze(1), tuple(each.squeeze(1) for each in ends)
        elif self.batch_first:
            x = x.transpose(0, 1)
        return x, ends if self.mode == "LSTM" else ends[0]

    def _of_packed(self, input: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        """Hidden and last states of a packed sequence; first states are in the order in which it was packed."""
        lengths = input.lengths()
        x = padded(input, 0.0, int(lengths.max(initial=0)))
        first = self._first(x.shape[1], x)
        if hx is not None:
            first = _in_order(tuple(hx) if self.mode == "LSTM" else (hx,), input.sorted_indices)
        x, ends = self._layers(x, first, lengths)
        ends = _in_order(ends, input.unsorted_indices)
        return repacked(x, input), ends if self.mode == "LSTM" else ends[0]

    def _layers(self, x: Tensor, first: State, lengths: np.ndarray | None) -> tuple[Tensor, State]:
        """Hidden states [length, N, ...] of the last layer, and the last states of all."""
        directions = 2 if self.bidirectional else 1
        last: list[State] = []
        for number in range(self.num_layers):
            state = tuple(each.narrow(0, number * directions, directions) for each in first)
            x, end = layer(self.mode, x, state, [self._weights(ending) for ending in self._endings(number)], lengths)
            last.append(end)
            if self.dropout and number + 1 < self.num_layers:
                x = dropout(x, self.dropout, self.training)
        return x, tuple(cat(list(each)) for each in zip(*last, strict=True))

    def extra_repr(self) -> str:
        """Sizes, and the settings that are not the usual ones."""
        parts = [f"{self.input_size}, {self.hidden_size}"]
        if self.proj_size:
            parts.append(f"proj_size={self.proj_size}")
        if self.num_layers != 1:
            parts.append(f"num_layers={self.num_layers}")
        if not self.bias:
            parts.append(f"bias={self.bias}")
        if self.batch_first:
            parts.append(f"batch_first={self.batch_first}")
        if self.dropout:
            parts.append(f"dropout={self.dropout}")
        if self.bidirectional:
            parts.append(f"bidirectional={self.bidirectional}")
        return ", ".join(parts)


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber 1997); gates in the order input, forget, cell, output."""

    mode = "LSTM"

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        options = (proj_size, device, dtype)
        self._prepare(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, options)


class GRU(_Recurrent):
    """Gated recurrent units (Cho et al. 2014); gates in the order reset, update, new."""

    mode = "GRU"

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        options = (0, device, dtype)
        self._prepare(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, options)


class RNN(_Recurrent):
    """Simple recurrence by tanh or relu (Elman 1990)."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.mode = _mode(nonlinearity)
        options = (0, device, dtype)
        self._prepare(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, options)


def _in_order(states: State, order: Tensor | None) -> State:
    """States [layers * directions, N, hidden] in another order of sequences."""
    return states if order is None else tuple(state.index_select(1, order) for state in states)


def _mode(nonlinearity: str) -> str:
    if nonlinearity not in ("tanh", "relu"):
        raise UsageError("E-NN-VALUE", None, f"{nonlinearity!r} is not a nonlinearity", expected="tanh or relu")
    return f"RNN_{nonlinearity.upper()}"


class _Cell(Module):
    mode = ""

    def _prepare(self, input_size: int, hidden_size: int, bias: bool, device: Any, dtype: Any) -> None:
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        gates = GATES[self.mode] * hidden_size
        self.weight_ih = Parameter(zeros(gates, input_size, dtype=dtype, device=device))
        self.weight_hh = Parameter(zeros(gates, hidden_size, dtype=dtype, device=device))
        self.bias_ih = Parameter(zeros(gates, dtype=dtype)) if bias else None
        self.bias_hh = Parameter(zeros(gates, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """The next hidden state [N, hidden_size] or [hidden_size], of LSTMCell also the cell state; zeros are the first
        state by default."""
        nothing = zeros(*input.shape[:-1], self.hidden_size, dtype=input.dtype)
        count = 2 if self.mode == "LSTM" else 1
        given = (nothing,) * count if hx is None else tuple(hx) if count == 2 else (hx,)
        found = cell(self.mode, input, given, Weights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh))
        return found if count == 2 else found[0]

    def extra_repr(self) -> str:
        """Sizes, and whether biases are left out."""
        return f"{self.input_size}, {self.hidden_size}{'' if self.bias else ', bias=False'}"


class LSTMCell(_Cell):
    """One step of LSTM."""

    mode = "LSTM"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self._prepare(input_size, hidden_size, bias, device, dtype)


class GRUCell(_Cell):
    """One step of GRU."""

    mode = "GRU"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self._prepare(input_size, hidden_size, bias, device, dtype)


class RNNCell(_Cell):
    """One step of RNN."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.mode = _mode(nonlinearity)
        self._prepare(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity
