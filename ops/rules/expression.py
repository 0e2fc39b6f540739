"""Terms: graph values with Python operators, for gradients and decompositions written as formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Union

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Graph, Node, Value
from ...runtime.ir.op import Rule
from ...runtime.ir.shape_inference import Facts, Inference

Operand = Union["Term", float]


def without_none(attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes without those that are None (their default)."""
    return {name: value for name, value in attributes.items() if value is not None}


class Inferring(Builder):
    """A builder that infers what it adds, so that derivatives of known shapes take few nodes."""

    def __init__(self, build: Builder) -> None:
        super().__init__(build.graph, build.nodes, build.stem)
        self.facts = Facts()
        around: Graph | None = build.graph
        while around is not None:
            self.facts.graphs.insert(0, around)
            around = around.parent

    def keep(self, node: Node) -> None:
        super().keep(node)
        self.infer(node)

    def infer(self, node: Node) -> None:
        """Learn dtypes and shapes of a node's outputs."""
        if node.op.infer is not None:
            node.op.infer(Inference(node, self.facts))


class Term:
    """A value, and the builder that adds what is computed from it. Numbers take the dtype of the term that they
    meet."""

    def __init__(self, value: Value, build: Builder) -> None:
        self.value = value
        self.build = build

    def call(self, operator: str, *others: Term | None, **attributes: Any) -> Term:
        """The operator's first output, with this term as first input."""
        inputs = [self.value, *(None if other is None else other.value for other in others)]
        return Term(self.build.add(operator, inputs, without_none(attributes)), self.build)

    def integers(self, items: Sequence[int] | int) -> Term:
        """An i64 constant."""
        return Term(self.build.constant(items), self.build)

    def number(self, value: float) -> Term:
        """A constant scalar of this term's dtype."""
        if self.value.dtype is not None and self.value.dtype.is_float:
            return Term(self.build.constant(np.array(value, self.value.dtype.as_numpy())), self.build)
        return Term(self.build.add("CastLike", [self.build.constant(value, "float64"), self.value]), self.build)

    def filled(self, value: float) -> Term:
        """A tensor of this shape and dtype full of one number."""
        return self.number(value).call("Expand", self.shape)

    @property
    def shape(self) -> Term:
        """Lengths as an i64 tensor."""
        return self.call("Shape")

    @property
    def rank(self) -> int | None:
        """Number of dims where it is known."""
        return None if self.value.shape is None else len(self.value.shape)

    def length(self, axis: int) -> Term:
        """The length of an axis as an i64 tensor of one element."""
        return self.shape.call("Gather", self.integers([axis]))

    def like(self, other: Term) -> Term:
        """The same elements in the shape of `other`."""
        if self._is_like(other):
            return self
        return self.call("Reshape", other.shape, allowzero=1)

    def summed_to(self, other: Term) -> Term:
        """The gradient of `other`, which was broadcast to this shape: summed over the dims that `other` lacks or has
        once."""
        if self._is_like(other):
            return self
        axes = self._summed_axes(other)
        if axes is not None:
            missing = len(self.value.shape or ()) - len(other.value.shape or ())
            found = self.call("ReduceSum", self.integers(axes), keepdims=1) if axes else self
            return found.call("Squeeze", self.integers(list(range(missing)))) if missing else found
        return self._summed_at_run_time(other)

    def _is_like(self, other: Term) -> bool:
        return self.value.shape is not None and self.value.shape == other.value.shape and None not in self.value.shape

    def _summed_axes(self, other: Term) -> list[int] | None:
        """The axes that the other one lacks or has once, when that much is known of both."""
        here, there = self.value.shape, other.value.shape
        if here is None or there is None or len(here) < len(there):
            return None
        missing = len(here) - len(there)
        pairs = [(axis, here[axis], there[axis - missing]) for axis in range(missing, len(here))]
        if any(one is None or other is None or (one != other and other != 1) for _, one, other in pairs):
            return None
        return [*range(missing), *(axis for axis, one, other in pairs if one != other)]

    def _summed_at_run_time(self, other: Term) -> Term:
        here, there = self.shape, other.shape
        missing = here.call("Size").call("Sub", there.call("Size")).call("Reshape", self.integers([1]))
        ones = missing.call("ConstantOfShape", value=np.array([1], np.int64))
        whole = ones.call("Concat", there, axis=0)
        axes = whole.call("Equal", here).call("Not").call("NonZero").call("Reshape", self.integers([-1]))
        return self.call("ReduceSum", axes, keepdims=1, noop_with_empty_axes=1).like(other)

    def where(self, yes: Operand, no: Operand) -> Term:
        """`yes` where this term is true, else `no`; one of them is a term."""
        term = yes if isinstance(yes, Term) else no
        assert isinstance(term, Term)
        chosen, other = (item if isinstance(item, Term) else term.number(item) for item in (yes, no))
        return self.call("Where", chosen, other)

    def _with(self, operator: str, other: Operand) -> Term:
        return self.call(operator, other if isinstance(other, Term) else self.number(other))

    def __add__(self, other: Operand) -> Term:
        return self._with("Add", other)

    def __sub__(self, other: Operand) -> Term:
        return self._with("Sub", other)

    def __mul__(self, other: Operand) -> Term:
        return self._with("Mul", other)

    def __truediv__(self, other: Operand) -> Term:
        return self._with("Div", other)

    def __neg__(self) -> Term:
        return self.call("Neg")

    def __rsub__(self, other: float) -> Term:
        return self.number(other) - self

    __radd__ = __add__
    __rmul__ = __mul__

    def __rtruediv__(self, other: float) -> Term:
        return self.number(other) / self

    def __lt__(self, other: Operand) -> Term:
        return self._with("Less", other)

    def __gt__(self, other: Operand) -> Term:
        return self._with("Greater", other)

    def __le__(self, other: Operand) -> Term:
        return self._with("LessOrEqual", other)

    def __ge__(self, other: Operand) -> Term:
        return self._with("GreaterOrEqual", other)


def lowered(formula: Callable[..., Term | None]) -> Rule:
    """The rule that builds a formula of a node's inputs and attributes in place of the node; nothing where the formula
    gives None."""

    def rule(node: Node, build: Builder) -> None:
        known = Inferring(build)
        inputs = [None if value is None else Term(value, known) for value in node.inputs]
        made = formula(*inputs, **{**node.op.defaults, **node.attributes})
        if made is None:
            return
        found = made.value
        last = found.producer
        assert last is not None
        build.graph.values.pop(found.name, None)
        last.outputs = [node.outputs[0]]
        node.outputs[0].producer = last
        build.graph.values[node.outputs[0].name] = node.outputs[0]

    return rule
