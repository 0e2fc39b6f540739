"""Product normal form: nested Mul, Div by a number and integer Pow as a list of factors and one number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ...base.dataclass import dataclass
from ...ir.graph import Node, Value
from ...ir.registry import onnx

MAX_POWER = 4
"""Largest power that is expanded to a product."""
MAX_DEPTH = 4
"""Nesting depth beyond which a product counts as one factor."""


@dataclass(frozen=True)
class Factors:
    """The factors of a product, its numeric coefficient, and the nodes that compute it."""

    values: tuple[Value, ...] = ()
    number: float = 1.0
    nodes: tuple[Node, ...] = ()

    def __mul__(self, other: Factors) -> Factors:
        return Factors(self.values + other.values, self.number * other.number, self.nodes + other.nodes)

    def __pow__(self, power: int) -> Factors:
        return Factors(self.values * power, self.number**power, self.nodes)


class View(Protocol):
    """The part of a graph view that products need; see `graph_view.View`.

    Attributes:
        products: values as products of at most so many factors, as far as they have been asked for.
    """

    products: dict[tuple[Value, int], list[Factors]]

    def maker(self, value: Value | None) -> Node | None: ...
    def number(self, value: Value | None) -> float | None: ...
    def only(self, value: Value) -> bool: ...


def factorizations(value: Value, view: View, most: int, depth: int = 0) -> Iterator[Factors]:
    """The ways to write a value as a product of at most `most` factors, the longest first. A product with other readers
    counts as one factor."""
    number = view.number(value)
    if number is not None:
        yield Factors(number=number)
        return
    node = view.maker(value)
    if node is not None and not node.op.domain and depth < MAX_DEPTH and (not depth or view.only(value)):
        for made in _parts(node, view, most, depth + 1):
            if len(made.values) <= most:
                yield made * Factors(nodes=(node,))
    yield Factors((value,))


def factored(value: Value, view: View, most: int) -> list[Factors]:
    """All of `factorizations`, cached for the next pattern."""
    found = view.products.get((value, most))
    if found is None:
        found = view.products[value, most] = list(factorizations(value, view, most))
    return found


def _parts(node: Node, view: View, most: int, depth: int) -> Iterator[Factors]:
    left, right = (*node.inputs, None, None)[:2]
    if left is None or right is None:
        return
    number = view.number(right)
    if node.op is onnx.Mul and left is right:
        yield _base(left, view) ** 2
    elif node.op is onnx.Mul:
        for one in factorizations(left, view, most, depth):
            yield from (one * other for other in factorizations(right, view, most, depth))
    elif node.op is onnx.Div and number:
        yield from (one * Factors(number=1 / number) for one in factorizations(left, view, most, depth))
    elif node.op is onnx.Pow and number in range(2, MAX_POWER + 1):
        yield _base(left, view) ** int(number or 1)


def _base(value: Value, view: View) -> Factors:
    """The base of a power, repeated as a factor."""
    number = view.number(value)
    return Factors((value,)) if number is None else Factors(number=number)
