"""Terms: graph values with Python operators, for gradients and decompositions written as formulas."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Union

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.clone import needed as used_by
from ...runtime.ir.complex_operators import of_elements
from ...runtime.ir.graph import Graph, Node, Value
from ...runtime.ir.op import Rule, Undecomposable
from ...runtime.ir.shape_inference import Facts, Inference
from ...runtime.tensor.dtype import DType

Operand = Union["Term", float]


def without_none(attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes without those that are None (their default)."""
    return {name: value for name, value in attributes.items() if value is not None}


class Inferring(Builder):
    """A builder that infers what it adds, so that derivatives of known shapes take few nodes. It shares what it learns
    with an inferring builder that it is made of."""

    facts: Facts

    def __init__(self, build: Builder) -> None:
        super().__init__(build.graph, build.nodes, build.stem)
        if isinstance(build, Inferring):
            self.facts = build.facts
            return
        self.facts = Facts()
        around: Graph | None = build.graph
        while around is not None:
            self.facts.graphs.insert(0, around)
            around = around.parent

    def keep(self, node: Node) -> None:
        node.op = of_elements(node.op, [None if value is None else value.dtype for value in node.inputs])
        super().keep(node)
        self.infer(node)

    def infer(self, node: Node) -> None:
        """Learn dtypes and shapes of a node's outputs."""
        if node.op.infer is not None:
            node.op.infer(Inference(node, self.facts))


class Term:
    """A value, and the builder that adds nodes which read it. Numbers take the dtype of the term that they
    meet."""

    def __init__(self, value: Value, build: Builder) -> None:
        self.value = value
        self.build = build

    def call(self, operator: str, *others: Term | None, **attributes: Any) -> Term:
        """The operator's first output, with this term as first input."""
        return self.calls(operator, *others, **attributes)[0]

    def calls(
        self, operator: str, *others: Term | None, domain: str = "", outputs: int = 1, **attributes: Any
    ) -> list[Term]:
        """All outputs of the operator, with this term as first input."""
        inputs = [self.value, *(None if other is None else other.value for other in others)]
        made = self.build.node(operator, inputs, without_none(attributes), domain=domain, outputs=outputs)
        return [Term(value, self.build) for value in made.outputs]

    def constant(self, elements: Any, dtype: str | np.dtype[Any] = "int64") -> Term:
        """A constant tensor."""
        return Term(self.build.constant(np.asarray(elements, dtype)), self.build)

    def integers(self, items: Sequence[int] | int) -> Term:
        """An i64 constant."""
        return Term(self.build.constant(items), self.build)

    def number(self, value: float) -> Term:
        """A constant scalar of this term's dtype."""
        if self.value.dtype is not None and self.value.dtype.has_gradient:
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

    @property
    def lengths(self) -> list[int]:
        """Lengths of all axes; Undecomposable where one is unknown."""
        known = [length for length in self.value.shape or () if isinstance(length, int)]
        if self.value.shape is None or len(known) < len(self.value.shape):
            raise Undecomposable(f"the shape of {self.value.name!r} is unknown")
        return known

    @property
    def axes(self) -> int:
        """Number of axes; Undecomposable where it is unknown."""
        if self.rank is None:
            raise Undecomposable(f"the rank of {self.value.name!r} is unknown")
        return self.rank

    @property
    def dtype(self) -> DType:
        """Dtype; Undecomposable where it is unknown."""
        if self.value.dtype is None:
            raise Undecomposable(f"the dtype of {self.value.name!r} is unknown")
        return self.value.dtype

    @property
    def scalar(self) -> Term:
        """The only element, without axes."""
        return self.call("Squeeze") if self.rank else self

    def cast(self, dtype: DType) -> Term:
        """The elements in another dtype."""
        return self if self.value.dtype is dtype else self.call("Cast", to=dtype.onnx)

    def part(self, axis: int, start: int, stop: int, step: int = 1) -> Term:
        """Some indices of an axis."""
        return self.call("Slice", *(self.integers([item]) for item in (start, stop, axis, step)))

    def entry(self, axis: int, index: int) -> Term:
        """Select one index of an axis and drop the axis."""
        return self.part(axis, index, index + 1).call("Squeeze", self.integers([axis]))

    def rows(self, places: Term) -> Term:
        """Entries of the first axis; an index below 0 is as one after the end."""
        below = places.call("Less", places.number(0))
        return self.call("Gather", below.where(self.length(0).call("CastLike", places), places))

    def reshaped(self, *lengths: int) -> Term:
        """The same elements in another shape."""
        return self.call("Reshape", self.integers(list(lengths)))

    def unsqueezed(self, *axes: int) -> Term:
        """With new axes of length 1."""
        return self.call("Unsqueeze", self.integers(list(axes)))

    def transposed(self, axes: Sequence[int]) -> Term:
        """With the axes in another order."""
        return self if list(axes) == list(range(len(axes))) else self.call("Transpose", perm=list(axes))

    def channels_first(self) -> Term:
        """[n, spatial..., channels] as [n, channels, spatial...]."""
        return self.transposed([0, self.axes - 1, *range(1, self.axes - 1)])

    def channels_last(self) -> Term:
        """[n, channels, spatial...] as [n, spatial..., channels]."""
        return self.transposed([0, *range(2, self.axes), 1])

    def concatenated(self, *others: Term, axis: int) -> Term:
        """Followed by others along an axis."""
        return self.call("Concat", *others, axis=axis) if others else self

    def length(self, axis: int) -> Term:
        """The length of an axis as an i64 tensor of one element."""
        known = None if self.value.shape is None else self.value.shape[axis]
        if isinstance(known, int):
            return self.integers([known])
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


Formula = Callable[..., "Term | Sequence[Term | None] | None"]
"""Terms of the outputs from terms of the inputs and attributes; None, or `Undecomposable`, for nodes that it does not
express."""


def lowered(formula: Formula) -> Rule:
    """The rule that builds a formula of a node's inputs and attributes in place of the node; nothing where the formula
    gives None."""

    def rule(node: Node, build: Builder) -> None:
        known = Inferring(build)
        first, weights = len(build.nodes), len(build.graph.weights)
        inputs = [None if value is None else Term(value, known) for value in node.inputs]
        made = formula(*inputs, **{**node.op.defaults, **node.attributes})
        if made is None:
            return
        terms = (made,) if isinstance(made, Term) else made
        wanted = [value for value in node.outputs if value.name]
        stands: dict[Value, Value] = {}
        for value, term in itertools.zip_longest(node.outputs, terms[: len(node.outputs)]):
            if value.name:
                if term is None:
                    raise Undecomposable(f"its output {value.name!r} is not expressed")
                if term.value in stands or not _renamed(build, first, term.value, value):
                    build.add("Identity", [stands.get(term.value, term.value)], outputs=[value])
                stands[term.value] = value
        drop_unused(build, first, weights, wanted)

    return rule


def _renamed(build: Builder, first: int, found: Value, value: Value) -> bool:
    """Put `value` in place of `found` where a node from number `first` on computes that; returns whether one does."""
    last = next((node for node in build.nodes[first:] if found in node.outputs), None)
    if last is None:
        return False
    build.graph.values.pop(found.name, None)
    last.outputs[last.outputs.index(found)] = value
    value.producer = last
    build.graph.values[value.name] = value
    for node in build.nodes[first:]:
        node.inputs = [value if item is found else item for item in node.inputs]
    return True


def drop_unused(build: Builder, first: int, weights: int, outputs: Sequence[Value]) -> None:
    """Remove what was built and does not lead to `outputs`: nodes from number `first` on, weights from number `weights`
    on."""
    needed, kept = set(outputs), []
    for node in reversed(build.nodes[first:]):
        if any(value in needed for value in node.outputs):
            kept.append(node)
            needed.update(used_by(node))
        else:
            for value in node.outputs:
                build.graph.values.pop(value.name, None)
    build.nodes[first:] = kept[::-1]
    for name in list(itertools.islice(build.graph.weights, weights, None)):
        if build.graph.values[name] not in needed:
            del build.graph.weights[name], build.graph.values[name]
