"""Gradient rules: formulas of terms, registered by operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Node, Value
from ...runtime.ir.op import Op, Undecomposable, gradient
from ..rules.expression import Inferring, Term, without_none
from .propagation import through, without_grad


@dataclass(frozen=True)
class Step:
    """One node of the graph that is differentiated, as formulas see it.

    Attributes:
        x, y: inputs and outputs; None where they are absent.
        g: gradients of the outputs; None where nothing depends on one.
        attributes: all of them, defaults filled in.
    """

    node: Node
    build: Builder
    x: list[Term | None]
    y: list[Term | None]
    g: list[Term | None]
    attributes: dict[str, Any]

    def input(self, index: int) -> Term:
        """An input that must be there."""
        term = self.x[index]
        assert term is not None
        return term

    @property
    def grad(self) -> Term:
        """The gradient of the first output."""
        assert self.g[0] is not None
        return self.g[0]

    def known(self, index: int) -> np.ndarray | None:
        """The elements of a constant input; None where it is absent.

        Raises Undecomposable if they are only known when the node runs.
        """
        term = self.x[index] if index < len(self.x) else None
        if term is None:
            return None
        array = self.build.facts.array(term.value) if isinstance(self.build, Inferring) else None
        if array is None:
            raise Undecomposable(f"its input {index} is not a constant")
        return array

    def integers(self, items: Sequence[int] | int) -> Term:
        """An i64 constant."""
        return Term(self.build.constant(items), self.build)

    def of(self, operator: str, inputs: Sequence[Term | None], **attributes: Any) -> Term:
        """The first output of a new node."""
        return Term(
            self.build.add(
                operator, [None if item is None else item.value for item in inputs], without_none(attributes)
            ),
            self.build,
        )

    def output(self, index: int) -> Term:
        """An output of the node, which gets it where it was not asked for."""
        while len(self.node.outputs) <= index:
            self.node.outputs.append(Value(""))
        value = self.node.outputs[index]
        if not value.name:
            value.name = self.build.name("output")
            value.producer = self.node
            self.build.graph.values[value.name] = value
        return Term(value, self.build)


Formula = Callable[[Step], Sequence[Term | None]]
"""Gradients of the inputs, or the outputs of a formula that is differentiated; missing ones at the end are None."""


def differentiated(*operators: Op) -> Callable[[Formula], Formula]:
    """Register a formula as the gradient of operators. It is asked only where the first output has a gradient, or `g`
    says which have."""

    def registered(formula: Formula) -> Formula:
        def rule(node: Node, build: Builder, gradients: Sequence[Value | None]) -> list[Value | None]:
            return [None if term is None else term.value for term in formula(_step(node, build, gradients))]

        gradient(*operators)(rule)
        return formula

    return registered


def _step(node: Node, build: Builder, gradients: Sequence[Value | None]) -> Step:
    def terms(values: Sequence[Value | None]) -> list[Term | None]:
        return [None if value is None else Term(value, build) for value in values]

    outputs: list[Value | None] = [value if value.name else None for value in node.outputs]
    attributes = {**node.op.defaults, **node.attributes}
    return Step(node, build, terms(node.inputs), terms(outputs), terms(gradients), attributes)


def differentiated_as(*operators: Op) -> Callable[[Formula], Formula]:
    """Register a formula of the outputs of operators, whose derivatives are theirs. It may raise `Undecomposable`."""

    def registered(formula: Formula) -> Formula:
        def rule(node: Node, build: Builder, gradients: Sequence[Value | None]) -> list[Value | None]:
            step, first = _step(node, build, gradients), len(build.nodes)
            grads: dict[Value, Term] = {}
            for made, g in zip(formula(step), step.g, strict=False):
                if g is not None:
                    if made is None:
                        raise Undecomposable("one of its outputs has no derivative")
                    grads[made.value] = grads[made.value] + g if made.value in grads else g
            wanted = [value if value is not None and _moves(value) else None for value in node.inputs]
            parts = through(build, build.nodes[first:], grads, wanted)
            return [None if part is None else part.value for part in parts]

        gradient(*operators)(rule)
        return formula

    return registered


def _moves(value: Value) -> bool:
    """Whether a value can have a gradient."""
    return value.dtype is None or value.dtype.has_gradient


def elementwise(table: dict[Op, Callable[..., Term]]) -> None:
    """Register formulas of (x, y, g) and numeric attributes for operators of one input and one output."""
    for operator, formula in table.items():

        def rule(step: Step, formula: Callable[..., Term] = formula) -> list[Term | None]:
            return [formula(step.input(0), step.y[0], step.grad, **step.attributes)]

        differentiated(operator)(rule)


def without_gradient(*operators: Op) -> None:
    """Register such operators."""
    gradient(*operators)(without_grad)
