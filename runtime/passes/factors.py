"""Products taken apart: nested Mul, Div by a number and Pow by a whole number as factors and one number."""

from __future__ import annotations

from collections.abc import Iterator

from ..graph import Node, Value
from ..record import dataclass
from .view import View

MOST_POWER = 4
"""Powers above this are not seen as a product."""
DEEPEST = 4
"""Products nested deeper than this count as one factor."""


@dataclass(frozen=True)
class Factors:
    """What is multiplied, the number that it is multiplied by, and the nodes that do."""

    values: tuple[Value, ...] = ()
    number: float = 1.0
    nodes: tuple[Node, ...] = ()

    def __mul__(self, other: Factors) -> Factors:
        return Factors(self.values + other.values, self.number * other.number, self.nodes + other.nodes)

    def __pow__(self, power: int) -> Factors:
        return Factors(self.values * power, self.number**power, self.nodes)


def factorizations(value: Value, view: View, most: int, depth: int = 0) -> Iterator[Factors]:
    """The ways to see a value as a product of at most so many factors, the longest first. Products that others read too count as one."""
    number = view.number(value)
    if number is not None:
        yield Factors(number=number)
        return
    node = view.maker(value)
    if node is not None and not node.op.domain and depth < DEEPEST and (not depth or view.only(value)):
        for made in _parts(node, view, most, depth + 1):
            if len(made.values) <= most:
                yield made * Factors(nodes=(node,))
    yield Factors((value,))


def factored(value: Value, view: View, most: int) -> list[Factors]:
    """All of `factorizations`, kept for the next pattern that asks."""
    found = view.products.get((value, most))
    if found is None:
        found = view.products[value, most] = list(factorizations(value, view, most))
    return found


def _parts(node: Node, view: View, most: int, depth: int) -> Iterator[Factors]:
    left, right = (*node.inputs, None, None)[:2]
    if left is None or right is None:
        return
    number = view.number(right)
    if node.op.name == "Mul" and left is right:
        yield _base(left, view) ** 2
    elif node.op.name == "Mul":
        for one in factorizations(left, view, most, depth):
            yield from (one * other for other in factorizations(right, view, most, depth))
    elif node.op.name == "Div" and number:
        yield from (one * Factors(number=1 / number) for one in factorizations(left, view, most, depth))
    elif node.op.name == "Pow" and number in range(2, MOST_POWER + 1):
        yield _base(left, view) ** int(number or 1)


def _base(value: Value, view: View) -> Factors:
    """What is raised to a power: one factor, which then occurs often."""
    number = view.number(value)
    return Factors((value,)) if number is None else Factors(number=number)
