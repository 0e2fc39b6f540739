"""Patterns: subgraphs written as formulas with Python's operators.

    x = var("x")
    GELU = product(x, 0.5, 1 + call("Erf", product(x, math.sqrt(0.5))))

A variable stands for any value, and for the same one wherever it occurs. Sums match in either order; a `product`
matches its factors in any order and grouping, divisions by numbers and whole powers included. Constants of one element
are numbers, whatever their shape.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from itertools import permutations
from types import EllipsisType
from typing import Any, Union

from ...base.dataclass import dataclass
from ...ir.graph import Node, Value
from ...ir.op import Trait
from .graph_view import PartialMatch, View
from .product_form import factored

CLOSE = {"f64": 1e-9, "f32": 5e-7, "f16": 1e-3, "bf16": 8e-3}
"""Relative tolerance of a constant by dtype: a few roundings."""

Operand = Union["Pattern", float]


class Pattern(ABC):
    """Pattern of values."""

    @abstractmethod
    def matches(self, value: Value | None, found: PartialMatch, view: View) -> Iterator[PartialMatch]:
        """The ways in which a value matches."""

    def heads(self) -> frozenset[str]:
        """Operators that the last node may have."""
        return frozenset()

    def makers(self) -> frozenset[str] | None:
        """Operators of which one must compute the value; None if any other may, or none."""
        return None

    def inner_makers(self) -> tuple[tuple[frozenset[str], ...], ...]:
        """Alternatives of what must compute inputs of the last node: of each set of operators, one."""
        return ((),)

    def __add__(self, other: Operand) -> Pattern:
        return call("Add", self, other)

    def __sub__(self, other: Operand) -> Pattern:
        return call("Sub", self, other)

    def __mul__(self, other: Operand) -> Pattern:
        return call("Mul", self, other)

    def __truediv__(self, other: Operand) -> Pattern:
        return call("Div", self, other)

    def __or__(self, other: Pattern) -> Pattern:
        return Either((self, other))

    def __rtruediv__(self, other: float) -> Pattern:
        return call("Div", other, self)

    __radd__ = __add__
    __rmul__ = __mul__


@dataclass(frozen=True, eq=False)
class Variable(Pattern):
    """Any value, the same one wherever the variable occurs."""

    name: str

    def matches(self, value: Value | None, found: PartialMatch, view: View) -> Iterator[PartialMatch]:
        bound = None if value is None else found.bind(self.name, value)
        if bound is not None:
            yield bound


@dataclass(frozen=True, eq=False)
class Number(Pattern):
    """A one-element constant: a given number, or any number, bound to a name."""

    wanted: float | None = None
    name: str = ""

    def matches(self, value: Value | None, found: PartialMatch, view: View) -> Iterator[PartialMatch]:
        given = view.number(value)
        bound = None if given is None or value is None else self.bound(given, value, found)
        if bound is not None:
            yield bound

    def bound(self, given: float, value: Value, found: PartialMatch) -> PartialMatch | None:
        """The match extended by a number, if that is the wanted one to the precision of `value`; else None."""
        if self.wanted is not None:
            far = CLOSE.get(value.dtype.name, 0.0) if value.dtype is not None else 0.0
            return found if given == self.wanted or abs(given - self.wanted) <= far * abs(self.wanted) else None
        return found.bind(self.name, given)


@dataclass(frozen=True, eq=False)
class Call(Pattern):
    """One output of a node.

    Attributes:
        operators: names of those of ai.onnx that it may be of.
        inputs: patterns; None for an absent one; after `...` there may be others.
        attributes: values that it must have, defaults filled in.
        name: of the node in the match.
        shared: whether others may use the node's results too; it is kept for them.
    """

    operators: tuple[str, ...]
    inputs: tuple[Pattern | None, ...]
    attributes: Mapping[str, Any]
    name: str = ""
    output: int = 0
    shared: bool = False
    more: bool = False

    def heads(self) -> frozenset[str]:
        return frozenset(self.operators)

    def makers(self) -> frozenset[str]:
        return frozenset(self.operators)

    def inner_makers(self) -> tuple[tuple[frozenset[str], ...], ...]:
        found = (None if pattern is None else pattern.makers() for pattern in self.inputs)
        return (tuple(makers for makers in found if makers is not None),)

    def matches(self, value: Value | None, found: PartialMatch, view: View) -> Iterator[PartialMatch]:
        node = view.maker(value)
        if node is None or node.op.domain or node.op.name not in self.operators or len(node.outputs) <= self.output:
            return
        if node.outputs[self.output] is not value or not self._has_attributes(node):
            return
        bound = found.bind(self.name, node)
        if bound is None:
            return
        bound = bound if self.shared else bound.within(node)
        inputs = list(node.inputs)
        while inputs and inputs[-1] is None:
            inputs.pop()
        if len(inputs) < len(self.inputs):
            inputs += [None] * (len(self.inputs) - len(inputs))
        elif len(inputs) > len(self.inputs) and not self.more:
            return
        yield from self._inputs(inputs, bound, view)
        if Trait.COMMUTATIVE in node.op.traits and len(inputs) == 2 and inputs[0] is not inputs[1]:
            yield from self._inputs(inputs[::-1], bound, view)

    def _has_attributes(self, node: Node) -> bool:
        return all(
            node.attributes.get(name, node.op.defaults.get(name)) == wanted for name, wanted in self.attributes.items()
        )

    def _inputs(self, values: list[Value | None], found: PartialMatch, view: View) -> Iterator[PartialMatch]:
        ways = [found]
        for pattern, value in zip(self.inputs, values, strict=False):
            if pattern is not None:
                ways = [more for way in ways for more in pattern.matches(value, way, view)]
            elif value is not None:
                return
        yield from ways


@dataclass(frozen=True, eq=False)
class Either(Pattern):
    """One of several patterns."""

    options: tuple[Pattern, ...]

    def heads(self) -> frozenset[str]:
        return frozenset().union(*(option.heads() for option in self.options))

    def makers(self) -> frozenset[str] | None:
        found = [option.makers() for option in self.options]
        known = [makers for makers in found if makers is not None]
        return frozenset().union(*known) if len(known) == len(found) else None

    def inner_makers(self) -> tuple[tuple[frozenset[str], ...], ...]:
        return tuple(makers for option in self.options for makers in option.inner_makers())

    def matches(self, value: Value | None, found: PartialMatch, view: View) -> Iterator[PartialMatch]:
        for option in self.options:
            yield from option.matches(value, found, view)


@dataclass(frozen=True, eq=False)
class Product(Pattern):
    """Factors in any order and grouping; numeric factors are multiplied."""

    factors: tuple[Pattern, ...]
    number: Number

    def heads(self) -> frozenset[str]:
        return frozenset({"Mul", "Div", "Pow"}) | (self.factors[0].heads() if len(self.factors) == 1 else frozenset())

    def matches(self, value: Value | None, found: PartialMatch, view: View) -> Iterator[PartialMatch]:
        if value is None:
            return
        for made in factored(value, view, len(self.factors)):
            start = (
                self.number.bound(made.number, value, found.within(*made.nodes))
                if len(made.values) == len(self.factors)
                else None
            )
            if start is None:
                continue
            for order in dict.fromkeys(permutations(made.values)):
                ways = [start]
                for pattern, factor in zip(self.factors, order, strict=True):
                    ways = [more for way in ways for more in pattern.matches(factor, way, view)]
                yield from ways


def var(name: str) -> Pattern:
    """Any value."""
    return Variable(name)


def number(name: str) -> Number:
    """Any constant of one element."""
    return Number(None, name)


def as_pattern(item: Operand) -> Pattern:
    """A number as a pattern."""
    return item if isinstance(item, Pattern) else Number(float(item))


def call(
    operator: str,
    *inputs: Operand | EllipsisType | None,
    name: str = "",
    output: int = 0,
    shared: bool = False,
    **attributes: Any,
) -> Pattern:
    """An output of a node; `operator` may name several, ``"Reshape|Flatten"``; see `Call`."""
    patterns = tuple(None if item is None else as_pattern(item) for item in inputs if item is not ...)
    return Call(tuple(operator.split("|")), patterns, attributes, name, output, shared, ... in inputs)


def product(*factors: Operand) -> Pattern:
    """Factors in any order and grouping; at most one of them is a `number` without a value."""
    total, open_number = 1.0, None
    others = []
    for item in factors:
        if isinstance(item, Number) and item.wanted is None:
            open_number = item
        elif isinstance(item, Number | float | int):
            total *= item.wanted or 0.0 if isinstance(item, Number) else item
        else:
            others.append(item)
    return Product(tuple(others), open_number or Number(total))


def optional(operator: str, pattern: Pattern, *, shared: bool = True) -> Pattern:
    """A pattern, optionally followed by a unary operator."""
    return call(operator, pattern, shared=shared) | pattern
