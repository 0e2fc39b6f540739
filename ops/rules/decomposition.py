"""Operators defined by their decomposition: one formula of terms is NumPy reference, lowering, export and device form.

    @composed("BiasGelu", DOMAIN, types="T=float T", infer=same_as_input, examples=[case("f32[2,3,4]", "f32[4]")])
    def bias_gelu(a: Term, b: Term) -> Term:
        return (a + b).call("Gelu")

A module that ends in ``_kernel`` or ``_cuda`` may register kernels for such an operator; nodes without one are
decomposed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.call import Call
from ...runtime.ir.graph import Graph, Node, Value
from ...runtime.ir.op import Compute, Example, Infer, Op, Tolerance, Trait, Undecomposable, op
from ...runtime.tensor.dtype import of_numpy
from .expression import Formula, Inferring, Term, drop_unused, lowered
from .precision import widened
from .shape_rules import shape_error

F = TypeVar("F", bound=Callable[..., Any])
MAX_SIGNATURES = 64
"""Dtypes and shapes of inputs, with attributes, for which the nodes of a decomposition are kept."""


def composed(
    name: str,
    domain: str = "",
    since: int = 1,
    *,
    types: str | None = None,
    infer: Infer,
    examples: Iterable[Example] = (),
    tolerance: Tolerance | None = None,
    in_f32: bool = True,
    rows: Callable[[Any], Any] | None = None,
    traits: Iterable[Trait] = (),
) -> Callable[[Formula], Op]:
    """Make an operator of the formula of its outputs: terms are the inputs, keywords the attributes.

    Args:
        in_f32: whether NumPy computes narrower floats in f32 and rounds the results once.
        rows: of operators that work row by row, for nodes that are not decomposed.
    """

    def made(formula: Formula) -> Op:
        compute, lower = evaluated(name, formula), lowered(formula)
        declared = op(
            name,
            domain,
            since,
            types=types,
            infer=infer,
            examples=examples,
            tolerance=tolerance,
            lower=lower,
            rows=rows,
            traits=traits,
        )
        return declared(widened(compute) if in_f32 else compute)

    return made


def attributes_of(operator: Op, *left_out: str) -> Callable[[F], F]:
    """Declare that the ``**keywords`` of a compute function or formula are the attributes of another operator, with
    their defaults; some may be left out."""
    assert operator.compute is not None
    given = inspect.signature(operator.compute).parameters.values()
    taken = [each for each in given if each.kind is each.KEYWORD_ONLY and each.name not in ("call", *left_out)]

    def made(function: F) -> F:
        plain = inspect.signature(function)
        own = [parameter for parameter in plain.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
        vars(function)["__signature__"] = plain.replace(parameters=[*own, *taken])
        return function

    return made


def evaluated(name: str, formula: Formula) -> Compute:
    """The NumPy function of a formula; its nodes are built once for each signature."""
    kept: dict[Hashable, _Evaluation] = {}

    @functools.wraps(formula)
    def compute(*inputs: np.ndarray | None, **attributes: Any) -> Any:
        key = (
            tuple(None if item is None else (item.dtype, item.shape) for item in inputs),
            tuple((word, tuple(item) if isinstance(item, list) else item) for word, item in attributes.items()),
        )
        found = kept.get(key)
        if found is None:
            if len(kept) >= MAX_SIGNATURES:
                kept.clear()
            found = kept[key] = _Evaluation(name, formula, inputs, attributes)
        return found.run(inputs)

    return compute


class _Evaluation:
    """The nodes of a formula at given dtypes and shapes."""

    def __init__(
        self, name: str, formula: Formula, inputs: Sequence[np.ndarray | None], attributes: dict[str, Any]
    ) -> None:
        graph = Graph()
        build = Builder(graph, stem=name)
        self.inputs = [
            None if item is None else Value(f"{name}/input{index}", of_numpy(item.dtype), item.shape)
            for index, item in enumerate(inputs)
        ]
        graph.values.update((value.name, value) for value in self.inputs if value is not None)
        known = Inferring(build)
        try:
            made = formula(*(None if value is None else Term(value, known) for value in self.inputs), **attributes)
        except Undecomposable as error:
            raise shape_error(name, f"{error}", "E-OP-VALUE") from error
        assert made is not None
        self.single = isinstance(made, Term)
        terms: Sequence[Term | None] = (made,) if isinstance(made, Term) else made
        self.outputs = [None if term is None else term.value for term in terms]
        results = [value for value in self.outputs if value is not None]
        drop_unused(build, 0, 0, results)
        self.constants: dict[Value | None, np.ndarray] = {
            graph.values[key]: tensor.numpy() for key, tensor in graph.weights.items()
        }
        self.calls = list(_calls(graph.nodes, results))

    def run(self, inputs: Sequence[np.ndarray | None]) -> Any:
        """The outputs for arrays."""
        known: dict[Value | None, Any] = {None: None, **self.constants, **dict(zip(self.inputs, inputs, strict=True))}
        with np.errstate(all="ignore"):
            for node, compute, attributes, done in self.calls:
                made = compute(*[known[value] for value in node.inputs], **attributes)
                results = made if isinstance(made, tuple) else (made,)
                known.update((value, np.asarray(item)) for value, item in zip(node.outputs, results, strict=False))
                for value in done:
                    known.pop(value, None)
        found = [known[value] for value in self.outputs]
        return found[0] if self.single else tuple(found)


def _calls(
    nodes: Sequence[Node], results: Sequence[Value]
) -> Iterable[tuple[Node, Compute, dict[str, Any], list[Value]]]:
    """For each node its function, all its attributes, and the values that no later node reads."""
    last = {value: node for node in nodes for value in (*node.outputs, *node.inputs) if value is not None}
    made = {value for node in nodes for value in node.outputs}.difference(results)
    used = {value for node in nodes for value in node.inputs}.union(results)
    for node in nodes:
        assert node.op.compute is not None
        attributes = {**node.op.defaults, **node.attributes}
        if node.op.asks:
            attributes["call"] = Call(node, tuple(value in used for value in node.outputs), _without_subgraph)
        yield node, node.op.compute, attributes, [value for value in made if last[value] is node]


def _without_subgraph(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    raise AssertionError("a decomposition has no subgraphs")
