"""Cells of recurrent layers: one step from an input and states to an output and states, with Keras' weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import as_tensor, zeros
from ..core import activations, initializers, regularizers
from ..core.layer import Layer
from .basic import as_float
from .regularization import dropped

__all__ = ["GRUCell", "LSTMCell", "SimpleRNNCell", "StackedRNNCells"]


class _Cell(Layer):
    """Base of cells: kernel [C, gates * units], recurrent_kernel [units, gates * units], bias.

    Attributes:
        state_size: widths of the states, one number for a single state; output_size: width of the output.
    """

    gates: ClassVar[int] = 1
    constrained: ClassVar[Mapping[str, str]] = {
        "kernel_constraint": "kernel", "recurrent_constraint": "recurrent_kernel", "bias_constraint": "bias",
    }  # fmt: skip

    def __init__(
        self, units: int, activation: Any = "tanh", use_bias: bool = True, kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal", bias_initializer: Any = "zeros", kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None, bias_regularizer: Any = None, dropout: float = 0.0,
        recurrent_dropout: float = 0.0, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        self.units, self.use_bias = int(units), use_bias
        self.activation = activations.get(activation)
        initial = (kernel_initializer, recurrent_initializer, bias_initializer)
        self.initial = [initializers.get(each) for each in initial]
        penalties = (kernel_regularizer, recurrent_regularizer, bias_regularizer)
        self.penalties = [regularizers.get(each) for each in penalties]
        self.dropout, self.recurrent_dropout = dropout, recurrent_dropout
        self.state_size: Any = self.units
        self.output_size = self.units

    def build(self, input_shape: Any) -> None:
        width = self.gates * self.units
        shapes = {"kernel": (input_shape[-1], width), "recurrent_kernel": (self.units, width), "bias": self.bias_shape}
        for (name, shape), first, penalty in zip(shapes.items(), self.initial, self.penalties, strict=True):
            is_there = self.use_bias or name != "bias"
            setattr(self, name, self.add_weight(shape, first, regularizer=penalty, name=name) if is_there else None)

    @property
    def bias_shape(self) -> tuple[int, ...]:
        """The shape of the bias."""
        return (self.gates * self.units,)

    def get_initial_state(self, batch_size: int) -> list[Tensor]:
        """Zeros for each state."""
        sizes = self.state_size if isinstance(self.state_size, list) else [self.state_size]
        return [zeros(batch_size, each) for each in sizes]

    def _inputs(self, x: Tensor, h: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """The input and the hidden state of each gate, after dropout, which is the same at each step of a sequence."""
        masks = vars(self).setdefault("_masks", {})
        found = []
        for key, tensor, rate in (("x", x, self.dropout), ("h", h, self.recurrent_dropout)):
            if not self.training or not rate:
                found.append([tensor] * self.gates)
                continue
            if key not in masks:
                masks[key] = [dropped(tensor * 0 + 1, rate, tensor.shape).detach() for _ in range(self.gates)]
            found.append([tensor * mask for mask in masks[key]])
        if not vars(self).get("_in_sequence"):
            masks.clear()
        return found[0], found[1]

    def _products(self, items: Sequence[Tensor], kernel: Tensor) -> list[Tensor]:
        """What the kernel of each gate makes of its input."""
        if all(each is items[0] for each in items):
            return list((items[0] @ kernel).chunk(self.gates, -1))
        return [each @ part for each, part in zip(items, kernel.chunk(self.gates, -1), strict=True)]


class SimpleRNNCell(_Cell):
    """``activation(x @ kernel + h @ recurrent_kernel + bias)``."""

    def call(self, inputs: Tensor, states: Any) -> Any:
        """The output and the next states."""
        h = _first(states)
        (x,), (hidden,) = self._inputs(as_float(inputs, self.kernel), h)
        found = x @ self.kernel if self.bias is None else x @ self.kernel + self.bias
        found = self.activation(found + hidden @ self.recurrent_kernel)
        return found, [found] if isinstance(states, list | tuple) else found


class LSTMCell(_Cell):
    """Long short-term memory; gates in the order input, forget, cell, output."""

    gates = 4

    def __init__(
        self, units: int, activation: Any = "tanh", recurrent_activation: Any = "sigmoid", use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform", recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros", unit_forget_bias: bool = True, kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None, bias_regularizer: Any = None, dropout: float = 0.0,
        recurrent_dropout: float = 0.0, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            units, activation, use_bias, kernel_initializer, recurrent_initializer, bias_initializer,
            kernel_regularizer, recurrent_regularizer, bias_regularizer, dropout, recurrent_dropout, **options,
        )  # fmt: skip
        self.recurrent_activation = activations.get(recurrent_activation)
        self.state_size = [self.units, self.units]
        if unit_forget_bias:
            self.initial[2] = _Forgetting(self.initial[2], self.units)

    def call(self, inputs: Tensor, states: Any) -> Any:
        """The output and the next states, hidden and carried."""
        h, c = states
        xs, hs = self._inputs(as_float(inputs, self.kernel), h)
        parts = [sum(pair[1:], start=pair[0]) for pair in zip(
            self._products(xs, self.kernel), self._products(hs, self.recurrent_kernel), strict=True
        )]  # fmt: skip
        if self.bias is not None:
            parts = [part + bias for part, bias in zip(parts, self.bias.chunk(4, 0), strict=True)]
        i, f, g, o = parts
        carried = self.recurrent_activation(f) * c + self.recurrent_activation(i) * self.activation(g)
        found = self.recurrent_activation(o) * self.activation(carried)
        return found, [found, carried]


class GRUCell(_Cell):
    """Gated recurrent units; gates in the order update, reset, new.

    Args:
        reset_after: apply the reset gate after the product with the recurrent kernel, not before.
    """

    gates = 3

    def __init__(
        self, units: int, activation: Any = "tanh", recurrent_activation: Any = "sigmoid", use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform", recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros", kernel_regularizer: Any = None, recurrent_regularizer: Any = None,
        bias_regularizer: Any = None, dropout: float = 0.0, recurrent_dropout: float = 0.0, reset_after: bool = True,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            units, activation, use_bias, kernel_initializer, recurrent_initializer, bias_initializer,
            kernel_regularizer, recurrent_regularizer, bias_regularizer, dropout, recurrent_dropout, **options,
        )  # fmt: skip
        self.recurrent_activation = activations.get(recurrent_activation)
        self.reset_after = bool(reset_after)

    @property
    def bias_shape(self) -> tuple[int, ...]:
        """One row for the input, and with `reset_after` one for the hidden state."""
        return (2, 3 * self.units) if self.reset_after else (3 * self.units,)

    def call(self, inputs: Tensor, states: Any) -> Any:
        """The output and the next states."""
        h = _first(states)
        xs, hs = self._inputs(as_float(inputs, self.kernel), h)
        added = self._products(xs, self.kernel)
        update, reset, new = self.recurrent_kernel.chunk(3, -1)
        of_hidden: list[Any] = [hs[0] @ update, hs[1] @ reset]
        if self.bias is not None:
            own = self.bias[0] if self.reset_after else self.bias
            added = [part + bias for part, bias in zip(added, own.chunk(3, 0), strict=True)]
        biases = self.bias[1].chunk(3, 0) if self.bias is not None and self.reset_after else (0, 0, 0)
        z = self.recurrent_activation(added[0] + of_hidden[0] + biases[0])
        r = self.recurrent_activation(added[1] + of_hidden[1] + biases[1])
        candidate = r * (hs[2] @ new + biases[2]) if self.reset_after else (r * hs[2]) @ new
        found = z * h + (1 - z) * self.activation(added[2] + candidate)
        return found, [found] if isinstance(states, list | tuple) else found


class StackedRNNCells(Layer):
    """Cells one upon another, as one cell: each gets the output of the one before it.

    Args:
        cells: objects with ``call(inputs, states)`` and ``state_size``.
    """

    def __init__(self, cells: Sequence[Any], **options: Any) -> None:
        super().__init__(**options)
        self.cells = list(cells)

    @property
    def state_size(self) -> list[Any]:
        """The sizes of each cell."""
        return [each.state_size for each in self.cells]

    @property
    def output_size(self) -> Any:
        """The width of the output."""
        return width_of(self.cells[-1])

    def build(self, input_shape: Any) -> None:
        for each in self.cells:
            if isinstance(each, Layer) and not each.built:
                each.build(input_shape)
                each.built = True
            input_shape = (input_shape[0], width_of(each))

    def get_initial_state(self, batch_size: int) -> list[Any]:
        """The first states of each cell."""
        return [first_states(each, batch_size) for each in self.cells]

    def call(self, inputs: Tensor, states: Any) -> Any:
        """The output of the last cell, and the next states of each."""
        following = []
        for cell, state in zip(self.cells, states, strict=True):
            inputs, state = cell(inputs, state)
            following.append(state)
        return inputs, following


class _Forgetting(initializers.Initializer):
    """The first bias of an LSTM: 1 for the forget gate."""

    def __init__(self, others: Any, units: int) -> None:
        self.others, self.units = others, units

    def __call__(self, shape: tuple[int, ...], dtype: Any = None) -> Tensor:
        """New values of a shape."""
        array = self.others(shape).array().copy()
        array[self.units : 2 * self.units] = 1
        return as_tensor(array).to(dtype or "f32")


def width_of(cell: Any) -> int:
    """Width of the output of a cell."""
    own = getattr(cell, "output_size", None)
    size = cell.state_size if own is None else own
    return int(size[0] if isinstance(size, list | tuple) else size)


def first_states(cell: Any, batch_size: int) -> list[Any]:
    """The states of a cell before the first step."""
    if hasattr(cell, "get_initial_state"):
        found = cell.get_initial_state(batch_size=batch_size)
        return list(found) if isinstance(found, list | tuple) else [found]
    sizes = cell.state_size if isinstance(cell.state_size, list | tuple) else [cell.state_size]
    return [zeros(batch_size, each) for each in sizes]


def _first(states: Any) -> Tensor:
    found: Tensor = states[0] if isinstance(states, list | tuple) else states
    return found
