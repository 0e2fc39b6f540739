"""Traced functions: the operators that a function applies to tensors, repeated on other values as nodes of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...runtime.base.errors import UsageError
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Value
from ..core.expression import Expression, Signature, TensorType, held_tensor, placeholder
from ..core.grad_mode import set_grad_enabled
from ..core.tensor import Tensor

Part = tuple[Signature, tuple[int | None, ...], int]
"""An operator, the slots of its inputs, and the slot of its first output."""


class Parts:
    """The operators that lead to some expressions.

    Args:
        results: expressions.
        given: expressions that are inputs, and end the search.

    Attributes:
        inputs: `given`, or of them those that are used; then other arrays. They have the first slots.
        slots: by expression; count: of all.
    """

    def __init__(self, results: Sequence[Expression], given: Sequence[Expression], start: int) -> None:
        ends = set(given)
        inside: set[Expression] = set()
        stack = list(results)
        while stack:
            item = stack.pop()
            if item not in inside and item not in ends and item.order > start and item.inputs:
                inside.add(item)
                stack += [each for each in item.inputs if each is not None]
        self.inside = inside
        order = sorted(inside, key=lambda item: item.order)
        self.inputs: list[Expression] = list(given)
        self.slots: dict[Expression, int] = {each: slot for slot, each in enumerate(given)}
        for each in [*(each for item in order for each in item.inputs if each is not None), *results]:
            if each not in inside and each not in self.slots:
                self.slots[each] = len(self.inputs)
                self.inputs.append(each)
        self.parts: list[Part] = []
        self.count = len(self.inputs)
        known: dict[Any, int] = {}
        for item in order:
            if item.signature is None:
                assert item.inputs[0] is not None
                self.slots[item] = self.slots[item.inputs[0]]
                continue
            places = tuple([None if each is None else self.slots[each] for each in item.inputs])
            first = known.get((item.signature, places))
            if first is None:
                first = known[item.signature, places] = self.count
                self.parts.append((item.signature, places, first))
                self.count += len(item.signature.outputs)
            self.slots[item] = first + item.index


def repeated(parts: Sequence[Part], count: int, inputs: Sequence[Value | None], build: Builder) -> list[Value | None]:
    """The nodes of the parts; the values of all slots, of which the inputs have the first ones."""
    known: list[Value | None] = [*inputs, *[None] * (count - len(inputs))]
    for signature, places, first in parts:
        given = [None if slot is None else known[slot] for slot in places]
        node = build.node(signature.op, given, signature.attributes, outputs=len(signature.outputs))
        known[first : first + len(signature.outputs)] = node.outputs
    return known


class Traced:
    """A function of tensors, traced with inputs of these types; it returns a tensor, or a tuple of tensors and None."""

    def __init__(self, function: Callable[..., Any], types: Sequence[TensorType], name: str) -> None:
        given = [placeholder(each) for each in types]
        start = min((each.order for each in given), default=0)
        with set_grad_enabled(False):
            made = function(*[Tensor(each) for each in given])
        found = made if isinstance(made, tuple) else (made,)
        if not all(each is None or isinstance(each, Tensor) for each in found):
            why = f"{name} returned something that is not tensors"
            raise UsageError("E-TENSOR-FUNCTION", None, why, hint="Correct its body")
        results = [None if each is None else each.expression for each in found]
        self._parts = Parts([result for result in results if result is not None], given, start)
        self._constants = self._parts.inputs[len(given) :]
        self._wanted = [None if result is None else self._parts.slots[result] for result in results]

    def built(self, inputs: Sequence[Value], build: Builder) -> list[Value | None]:
        """The results for other inputs."""
        arrays = [constant.type.array if constant.data is None else constant.data for constant in self._constants]
        constants = [build.weight(held_tensor(array)) for array in arrays if array is not None]
        known = repeated(self._parts.parts, self._parts.count, [*inputs, *constants], build)
        return [None if slot is None else known[slot] for slot in self._wanted]
