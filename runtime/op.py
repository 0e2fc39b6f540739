"""Operators: what a node of the graph does. An operator is one function of arrays that has the ONNX operator's signature.

    @op("Softmax", since=13, infer=same_as_input, examples=[case("f32[2,3,4]", axis=1)])
    def softmax(x, *, axis: int = -1): ...

Inputs are positional (None where an optional one is absent), attributes are keywords whose defaults are the standard's. The result is
an array, or a tuple with one entry for each output. Operators live in `ops/`, which is searched by existence.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from .record import dataclass

if TYPE_CHECKING:
    from .build import Builder
    from .graph import Graph, Node, Value
    from .infer import Inference

Compute = Callable[..., Any]
Infer = Callable[["Inference"], None]
Rule = Callable[["Node", "Builder"], None]
Gradient = Callable[["Node", "Builder", "Sequence[Value | None]"], "Sequence[Value | None]"]


@dataclass(frozen=True)
class Example:
    """One application for the tests: inputs as arrays, texts such as ``"f32[2,3]"`` for made-up values, or None; attributes; outputs asked for."""

    inputs: tuple[Any, ...]
    attributes: dict[str, Any]
    outputs: int = 1


def case(*inputs: Any, outputs: int = 1, **attributes: Any) -> Example:
    """An example of an operator."""
    return Example(inputs, attributes, outputs)


@dataclass(frozen=True)
class Tolerance:
    """How far a right answer may be from the reference: ``|a - b| <= atol + rtol * |b|``."""

    rtol: float = 1e-5
    atol: float = 1e-6


@dataclass(frozen=True)
class Upgrade:
    """Takes a node of an opset below `below` to the definition of that opset."""

    below: int
    rule: Rule


@dataclass(frozen=True, eq=False)
class Op:
    """An operator by its ONNX name and domain ("" is ai.onnx).

    Attributes:
        since: the opset whose definition this is, the newest one.
        compute: NumPy on the host, for every dtype of the standard.
        infer: dtypes and shapes of the outputs.
        scalar: one element of the output from one element of each input, for operators that work element by element. Kernels are
            made from its source, with numbers in the element type; it is plain Python that means the same in Python, Numba and CUDA:
            a `def` at module level of comparisons, arithmetic, conditional expressions, `math` and other such functions.
            Numeric attributes that it needs are further parameters, by their names.
        lower: the same expressed by other operators: what a standard calls the function body.
        upgrades: rules from older definitions, in any order.
        stored: whether `compute` takes weights as they are stored, quantized ones as `Blocks`; other operators get float32.
        examples, tolerance: what the tests over all operators run, and how closely it must agree.
    """

    name: str
    domain: str = ""
    since: int = 1
    compute: Compute | None = None
    infer: Infer | None = None
    scalar: Callable[..., Any] | None = None
    lower: Rule | None = None
    upgrades: list[Upgrade] = field(default_factory=list)
    gradients: list[Gradient] = field(default_factory=list)
    stored: bool = False
    examples: tuple[Example, ...] = ()
    tolerance: Tolerance = field(default_factory=Tolerance)

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """Attributes with the values they have where a node does not give them; required ones are left out."""
        return {p.name: p.default for p in self._keywords if p.default is not inspect.Parameter.empty}

    @functools.cached_property
    def attributes(self) -> frozenset[str]:
        """Names of all attributes."""
        return frozenset(p.name for p in self._keywords)

    @functools.cached_property
    def asks(self) -> bool:
        """Whether `compute` takes a `Call`."""
        return self.compute is not None and "call" in inspect.signature(self.compute).parameters

    @functools.cached_property
    def repeatable(self) -> bool:
        """Whether the same inputs always give the same outputs: all but what draws random numbers."""
        return self.compute is not None and ".random" not in self.compute.__module__

    @property
    def _keywords(self) -> list[inspect.Parameter]:
        parameters = inspect.signature(self.compute).parameters.values() if self.compute else ()
        return [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "call"]

    def __repr__(self) -> str:
        return f"Op({self.domain + '.' if self.domain else ''}{self.name})"


@dataclass(frozen=True, eq=False, repr=False)
class Foreign(Op):
    """An operator that we do not know; it is carried through untouched and only running it is refused."""


@dataclass(frozen=True)
class Call:
    """What a compute function may ask of the run, by a keyword parameter `call`.

    Attributes:
        wanted: for each output of the node, whether anything uses it; results for others may be None.
        run: runs a subgraph (an attribute of the node) on values for its inputs, and gives its outputs.
    """

    node: Node
    wanted: tuple[bool, ...]
    run: Callable[[Graph, Sequence[Any]], list[Any]]

    def number(self, array: Any) -> Any:
        """The only element of a tensor that a subgraph gave."""
        import numpy as np

        return np.asarray(array).reshape(-1)[0]

    def entries(self, array: Any, axis: int) -> Sequence[Any]:
        """A tensor's entries along an axis."""
        import numpy as np

        return [np.asarray(entry) for entry in np.moveaxis(array, axis, 0)]

    def stacked(self, arrays: Sequence[Any], axis: int) -> Any:
        """Tensors of one dtype and shape as one, along a new axis."""
        import numpy as np

        return np.stack(arrays, axis)


def op(
    name: str, domain: str = "", since: int = 1, *, infer: Infer, examples: Iterable[Example] = (), tolerance: Tolerance | None = None,
    scalar: Callable[..., Any] | None = None, lower: Rule | None = None, stored: bool = False,
) -> Callable[[Compute], Op]:
    """Make an operator of its compute function."""

    def made(compute: Compute) -> Op:
        return Op(
            name, domain, since, compute, infer, scalar, lower, stored=stored, examples=tuple(examples), tolerance=tolerance or Tolerance(),
        )

    return made


def upgrade(*operators: Op, below: int) -> Callable[[Rule], Rule]:
    """Register a rule for nodes of opsets below `below`.

    The rule changes the node in place; where more nodes are needed it builds them, the node itself with ``build.keep(node)``, and the
    outputs under their own values with ``outputs=node.outputs``.
    """

    def registered(rule: Rule) -> Rule:
        for operator in operators:
            operator.upgrades.append(Upgrade(below, rule))
        return rule

    return registered


def gradient(*operators: Op) -> Callable[[Gradient], Gradient]:
    """Register the reverse-mode rule: from the gradients of a node's outputs to those of its inputs, None where there is none."""

    def registered(rule: Gradient) -> Gradient:
        for operator in operators:
            operator.gradients[:] = [rule]
        return rule

    return registered
