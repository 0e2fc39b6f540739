"""Symbolic tensors: `Input` and what layers make of it, from which a model takes its graph of layers."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

from ....runtime.base.errors import UsageError
from ....tensors.core.grad_mode import no_grad
from ....tensors.core.nested import mapped
from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import zeros

Shape = tuple[int | None, ...]
PROBES = ((2, 48), (3, 64))
"""Lengths of the batch, and of dims without a length, with which a layer is tried to find the shape of its output."""
_numbers = itertools.count()


class KerasTensor:
    """A tensor of a model's graph: a shape and a dtype without values.

    Attributes:
        shape: lengths of dims, None where they are not known before there is data.
        dtype: Keras' word, such as "float32".
        node: the call of a layer that gives it; None for an input that was not made by `Input`.
        index: which output of the call it is.
    """

    def __init__(self, shape: Any, dtype: Any = "float32", name: str | None = None) -> None:
        self.shape: Shape = tuple(shape)
        self.dtype = str(dtype)
        self.name = name or f"keras_tensor_{next(_numbers)}"
        self.node: Node | None = None
        self.index = 0

    @property
    def ndim(self) -> int:
        """Number of dims."""
        return len(self.shape)

    def __repr__(self) -> str:
        return f"<KerasTensor shape={self.shape}, dtype={self.dtype}, name={self.name}>"

    def __bool__(self) -> bool:
        raise UsageError(
            "E-NN-INPUT", None, "a symbolic tensor has no values", hint="Compute with it in a layer's call()"
        )

    def __getitem__(self, key: Any) -> Any:
        return self._apply("GetItem", self, key)

    def __neg__(self) -> Any:
        return self._apply("Negative", self)

    def _apply(self, name: str, *items: Any) -> Any:
        return OPERATION(name)(*items)


def _operator(name: str, reverse: bool) -> Callable[[KerasTensor, Any], Any]:
    def made(self: KerasTensor, other: Any) -> Any:
        return self._apply(name, *((other, self) if reverse else (self, other)))

    return made


OPERATIONS: dict[str, Callable[..., Any]] = {
    "Add": operator.add, "Subtract": operator.sub, "Multiply": operator.mul, "TrueDivide": operator.truediv,
    "Power": operator.pow, "Matmul": operator.matmul, "Negative": operator.neg, "GetItem": operator.getitem,
}  # fmt: skip
"""Operators of Python by Keras' names."""
for _name, _word in (
    ("Add", "add"), ("Subtract", "sub"), ("Multiply", "mul"), ("TrueDivide", "truediv"), ("Power", "pow"),
    ("Matmul", "matmul"),
):  # fmt: skip
    setattr(KerasTensor, f"__{_word}__", _operator(_name, False))
    setattr(KerasTensor, f"__r{_word}__", _operator(_name, True))


class _Provided:
    """The class of layers that apply an operator, which is defined above this module."""

    made: Callable[[str], Any]

    def __call__(self, name: str) -> Any:
        return self.made(name)


OPERATION = _Provided()


class Node:
    """One call of a layer.

    Attributes:
        layer: what is called; arguments, options: with symbolic tensors among them.
        inputs: the symbolic tensors of both; output: nested symbolic tensors.
    """

    def __init__(self, layer: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.layer, self.arguments, self.options = layer, arguments, options
        self.inputs = symbolic_tensors((arguments, options))
        self.output: Any = None

    def run(self, values: dict[int, Any]) -> Any:
        """Call the layer with the values of its inputs, by the identities of symbolic tensors."""

        def value(item: Any) -> Any:
            return values[id(item)] if isinstance(item, KerasTensor) else item

        arguments, options = mapped((self.arguments, self.options), value)
        return self.layer(*arguments, **options)


def symbolic_tensors(item: Any) -> list[KerasTensor]:
    """The symbolic tensors in nested lists and dictionaries."""
    found: list[KerasTensor] = []

    def note(each: Any) -> Any:
        if isinstance(each, KerasTensor):
            found.append(each)
        return each

    mapped(item, note)
    return found


def called(layer: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The symbolic output of a layer for symbolic inputs."""
    node = Node(layer, arguments, options)
    outputs = [_probe(layer, arguments, options, lengths) for lengths in PROBES]
    number = itertools.count()

    def joined(first: Any, second: Any) -> Any:
        if isinstance(first, list | tuple):
            return [joined(*pair) for pair in zip(first, second, strict=True)]
        if isinstance(first, dict):
            return {name: joined(first[name], second[name]) for name in first}
        shape = [one if one == other else None for one, other in zip(first.shape, second.shape, strict=True)]
        made = KerasTensor(shape, word_of(first.dtype))
        made.node, made.index = node, next(number)
        return made

    node.output = joined(*outputs)
    layer._nodes.append(node)
    return node.output


def _probe(layer: Any, arguments: Any, options: Any, lengths: tuple[int, int]) -> Any:
    given, named = mapped((arguments, options), functools.partial(_zeros, lengths=lengths))
    with no_grad():
        return layer(*given, **named)


def _zeros(item: Any, lengths: tuple[int, int]) -> Any:
    if not isinstance(item, KerasTensor):
        return item
    batch, other = lengths
    shape = [length or (other if place else batch) for place, length in enumerate(item.shape)]
    return zeros(*shape, dtype=item.dtype)


def word_of(dtype: Any) -> str:
    """Keras' word for a dtype."""
    return str(dtype.as_numpy()) if hasattr(dtype, "as_numpy") else str(dtype)


def shape_of(item: Any) -> Any:
    """Shapes of nested tensors, symbolic or not, as `build` gets them: one, or several in a list or dictionary."""
    return mapped(item, lambda each: tuple(each.shape) if isinstance(each, KerasTensor | Tensor) else None)
