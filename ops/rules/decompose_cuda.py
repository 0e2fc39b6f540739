"""Decomposition of a node into other operators on the device, with inputs as terms of known shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Node
from .expression import Inferring, Term, without_none


class Form:
    """A node under construction.

    Attributes:
        attributes: all of them, defaults filled in.
        build: infers what it adds.
    """

    def __init__(self, node: Node, build: Builder) -> None:
        self.node = node
        self.build = Inferring(build)
        self.attributes: dict[str, Any] = {**node.op.defaults, **node.attributes}

    def input(self, index: int) -> Term:
        """An input that the operator requires."""
        found = self.optional_input(index)
        assert found is not None
        return found

    def optional_input(self, index: int) -> Term | None:
        """An input, None if it is absent."""
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        return None if value is None else Term(value, self.build)

    def is_used(self, index: int) -> bool:
        """Whether output `index` exists and is used."""
        return index < len(self.node.outputs) and bool(self.node.outputs[index].name)

    def constant(self, numbers: Any, dtype: str | np.dtype[Any] = "int64") -> Term:
        """A constant."""
        return Term(self.build.constant(np.asarray(numbers, dtype)), self.build)

    def node_of(
        self, operator: str, inputs: list[Term | None], outputs: int, domain: str = "", **attributes: Any
    ) -> list[Term]:
        """All outputs of an operator."""
        values = [None if item is None else item.value for item in inputs]
        made = self.build.node(operator, values, without_none(attributes), domain=domain, outputs=outputs)
        return [Term(value, self.build) for value in made.outputs]

    def give(self, index: int, term: Term) -> None:
        """Output `index` of the node, in its dtype."""
        if self.is_used(index):
            self.build.add("Identity", [term.value], outputs=[self.node.outputs[index]])


def forms(formula: Callable[[Form], None]) -> Callable[[Node, Builder], None]:
    """A rule of `runtime.cuda.plan.kernel_api.decomposed` from a function of a form."""

    def rule(node: Node, build: Builder) -> None:
        formula(Form(node, build))

    return rule
