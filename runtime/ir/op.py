"""Operators: a function of arrays with the ONNX operator's signature, and its rules, gradient and examples.

    @op("Softmax", since=13, types="float", infer=same_as_input, examples=[case("f32[2,3,4]", axis=1)])
    def softmax(x, *, axis: int = -1): ...

Inputs are positional (None where an optional one is absent), attributes are keywords whose defaults are the standard's.
The result is an array, or a tuple with one entry for each output. Operators live in `ops/`, which is searched by
existence.
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol, TypeVar

from ..base.dataclass import dataclass

Compute = Callable[..., Any]


class Infer(Protocol):
    """Shape and type inference of an operator: sets the outputs of the node of an `Inference`."""

    def __call__(self, node: Any, /) -> None: ...


class Rule(Protocol):
    """Decomposition or upgrade: changes the `Node`, or replaces it by nodes added with the `Builder`."""

    def __call__(self, node: Any, build: Any, /) -> None: ...


class Gradient(Protocol):
    """Gradient rule: takes the `Node`, a `Builder`, and the gradients of the outputs; returns the gradient of each
    input, a `Value` or None."""

    def __call__(self, node: Any, build: Any, gradients: Any, /) -> Sequence[Any]: ...


class Undecomposable(Exception):
    """Raised by `Op.lower` for a node that it does not express; the message is the reason."""


class Trait(enum.Enum):
    """A property of an operator that passes and planners ask for. Each operator declares its own."""

    COMMUTATIVE = "the result is the same with its two inputs exchanged"
    RESHAPES = "the elements of the first input in the same order, in another shape"
    MOVES = "copies, selects or converts elements and computes none"
    LOOKUP = "elements or rows of the first input at the indices in the second"
    LOOP = "runs its subgraph several times"
    REDUCTION = "folds axes, which the second input states, and keeps them where keepdims is set"
    PRODUCT = "multiplies floats and adds many products"
    SUMS = "adds many elements or grows fast: computes in f32 under autocast"
    KEEPS_F32 = "stays as it is where a graph is converted to f16"
    IMPRECISE_IN_F16 = "computes in f32 where a graph is mostly f16"
    NON_NEGATIVE = "no result is below zero"
    FINITE_AT_ZERO = "finite for zeros and for what other such operators make of zeros"
    MIXES_POSITIONS = "an output element depends on input elements at any distance"


R = TypeVar("R", bound=Rule)
G = TypeVar("G", bound=Gradient)


@dataclass(frozen=True)
class Example:
    """One test case of an operator: inputs as arrays, strings such as ``"f32[2,3]"`` for random values, or None;
    attributes; number of outputs."""

    inputs: tuple[Any, ...]
    attributes: dict[str, Any]
    outputs: int = 1


def case(*inputs: Any, outputs: int = 1, **attributes: Any) -> Example:
    """An example of an operator."""
    return Example(inputs, attributes, outputs)


@dataclass(frozen=True)
class Tolerance:
    """Accepted error relative to the reference: ``|a - b| <= atol + rtol * |b|``."""

    rtol: float = 1e-5
    atol: float = 1e-6


@dataclass(frozen=True)
class Upgrade:
    """Rewrites a node of an opset below `below` as nodes of that opset."""

    below: int
    rule: Rule


@dataclass(frozen=True, eq=False)
class Op:
    """An operator by its ONNX name and domain ("" is ai.onnx).

    Attributes:
        since: the opset whose definition this is, the newest one.
        compute: NumPy on the host, for every dtype of the standard.
        infer: dtypes and shapes of the outputs.
        scalar: one element of the output from one element of each input, for operators that work element by element.
            Kernels are generated from its source, with numbers in the element type. It is a `def` at module level of
            comparisons, arithmetic, conditional expressions, `math` and other such functions, which means the same in
            Python, Numba and CUDA. Numeric attributes that it needs are further parameters, by their names.
        rows: folds of rows and results from them (`runtime.plan.rows`), for operators that work row by row: kernels are
            made from the description of a node.
        lower: the same expressed by other operators: what a standard calls the function body. It may raise
            `Undecomposable`.
        upgrades: rules from older definitions, in any order.
        types: dtypes of the inputs that the definition allows, as `operand_types` describes; None for any.
        stored: whether `compute` takes weights as they are stored, quantized ones as `Blocks`; other operators get
            float32.
        random: whether `compute` draws random numbers, so that the same inputs may give other outputs.
        traits: properties that passes ask for, instead of comparing names.
        weights: the inputs that hold weights where they are constants, with the axis of output channels.
        examples, tolerance: what the tests over all operators run, and how closely it must agree.
    """

    name: str
    domain: str = ""
    since: int = 1
    compute: Compute | None = None
    infer: Infer | None = None
    scalar: Callable[..., Any] | None = None
    lower: Rule | None = None
    rows: Callable[[Any], Any] | None = None
    upgrades: list[Upgrade] = field(default_factory=list)
    gradients: list[Gradient] = field(default_factory=list)
    types: str | None = None
    stored: bool = False
    random: bool = False
    traits: frozenset[Trait] = frozenset()
    weights: Mapping[int, int] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()
    tolerance: Tolerance = field(default_factory=Tolerance)

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """Default values of attributes; required attributes are left out."""
        return {p.name: p.default for p in self._keywords if p.default is not inspect.Parameter.empty}

    @functools.cached_property
    def attributes(self) -> frozenset[str]:
        """Names of all attributes."""
        return frozenset(p.name for p in self._keywords)

    @functools.cached_property
    def asks(self) -> bool:
        """Whether `compute` takes a `Call`."""
        return self.compute is not None and "call" in inspect.signature(self.compute).parameters

    @property
    def repeatable(self) -> bool:
        """Whether equal inputs always give equal outputs."""
        return self.compute is not None and not self.random

    @property
    def _keywords(self) -> list[inspect.Parameter]:
        parameters = inspect.signature(self.compute).parameters.values() if self.compute else ()
        return [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "call"]

    def __repr__(self) -> str:
        return f"Op({self.domain + '.' if self.domain else ''}{self.name})"


@dataclass(frozen=True, eq=False, repr=False)
class Foreign(Op):
    """An unknown operator. It is kept unchanged by conversions; running it raises an error."""


def op(
    name: str,
    domain: str = "",
    since: int = 1,
    *,
    types: str | None = None,
    infer: Infer,
    examples: Iterable[Example] = (),
    tolerance: Tolerance | None = None,
    scalar: Callable[..., Any] | None = None,
    lower: Rule | None = None,
    rows: Callable[[Any], Any] | None = None,
    stored: bool = False,
    random: bool = False,
    traits: Iterable[Trait] = (),
    weights: Mapping[int, int] | None = None,
) -> Callable[[Compute], Op]:
    """Make an operator from its compute function."""

    def made(compute: Compute) -> Op:
        return Op(
            name,
            domain,
            since,
            compute,
            infer,
            scalar,
            lower,
            rows,
            types=types,
            stored=stored,
            random=random,
            traits=frozenset(traits),
            weights=weights or {},
            examples=tuple(examples),
            tolerance=tolerance or Tolerance(),
        )

    return made


def upgrade(*operators: Op, below: int) -> Callable[[R], R]:
    """Register an upgrade rule for nodes of opsets below `below`.

    The rule changes the node in place. A rule that needs more nodes builds them, the node itself with
    ``build.keep(node)``, and writes to the original outputs with ``outputs=node.outputs``.
    """

    def registered(rule: R) -> R:
        for operator in operators:
            operator.upgrades.append(Upgrade(below, rule))
        return rule

    return registered


def gradient(*operators: Op) -> Callable[[G], G]:
    """Register the gradient rule: from the gradients of a node's outputs to those of its inputs, None for inputs
    without a gradient."""

    def registered(rule: G) -> G:
        for operator in operators:
            operator.gradients[:] = [rule]
        return rule

    return registered
