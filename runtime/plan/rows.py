"""Row operators: folds of each row and results from them; CPU and CUDA kernels are generated from one description.

    def _rows(step: BaseStep) -> Rows:
        x = step.inputs[0]
        folds = (Fold("most", element, larger), Fold("total", _power, add))
        return Rows(x.shape, [step.attributes["axis"]], {"x": x}, folds, [Output(_share, step.output())])

    @op("Softmax", rows=_rows, ...)

A row is the set of elements at one index of the axes that are kept. Functions are plain Python at module level, as
`Op.scalar`; they take parameters by name: an operand's element, a fold of the row, the name of a fold's elements,
``index`` in the row, ``count`` of its elements, or a number of the description.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ..base.dataclass import dataclass
from ..jit.range_kernel import inlined
from .kernel_api import Buffer


def add(one: float, other: float) -> float:
    """Sum."""
    return one + other


def times(one: float, other: float) -> float:
    """Product."""
    return one * other


def larger(one: float, other: float) -> float:
    """Maximum, which propagates NaN."""
    return one if one > other or one != one else other


def smaller(one: float, other: float) -> float:
    """Minimum, which propagates NaN."""
    return one if one < other or one != one else other


def start(join: Callable[..., Any], dtype: np.dtype[Any]) -> str:
    """The initial value of a fold, as source; numbers are literals, since compile workers lack ``np.iinfo``."""
    if join is add:
        return "0"
    if join is times:
        return "1"
    if dtype.kind == "f":
        return {larger: "-np.inf", smaller: "np.inf"}[join]
    bounds = np.iinfo(dtype)
    return str(int({larger: bounds.min, smaller: bounds.max}[join]))


def element(x: float) -> float:
    """The element itself."""
    return x


def magnitude(x: float) -> float:
    """The absolute value."""
    return abs(x)


def square(x: float) -> float:
    """x * x."""
    return x * x


def found(found: float) -> float:
    """The fold of that name."""
    return found


@inlined
def stored(value: float) -> float:
    """Rounds to the dtype of the first operand where that is f16 or bf16."""
    return value


@dataclass(frozen=True)
class Fold:
    """A reduction of a row to one value.

    Attributes:
        value: what is folded, from the elements and the folds before.
        join: `add`, `times`, `larger` or `smaller`.
        finish: the fold, from ``total`` and others; the total itself where None.
        dtype: of the fold, that of the computation where None.
        element: a name by which later functions take the folded values, which are of the first output's dtype.
    """

    name: str
    value: Callable[..., Any]
    join: Callable[..., Any]
    finish: Callable[..., Any] | None = None
    dtype: np.dtype[Any] | None = None
    element: str = ""


@dataclass(frozen=True)
class Output:
    """An output with an element per element of a row, or one per row.

    Attributes:
        value: an output per row takes folds, numbers, and operands that are equal along the axes of a row.
        buffer: contiguous over the shape of the description, or over the axes that are kept.
    """

    value: Callable[..., Any]
    buffer: Buffer
    per_row: bool = False


@dataclass(frozen=True)
class Scan:
    """Outputs per element take the fold as it is at the element, from the row's end for `reverse`, without the element
    for `exclusive`."""

    reverse: bool = False
    exclusive: bool = False


@dataclass(frozen=True)
class Rows:
    """The description of one node.

    Attributes:
        shape: of the box that operands are broadcast to.
        axes: those of a row; the others are kept.
        operands: by name. The first one decides the dtype of the computation: f32 for f16 and bf16.
        scan: for the running values of a single fold over one axis.
        scalars: by name.
        fractions: whether integers are computed in f64.
    """

    shape: Sequence[int]
    axes: Sequence[int]
    operands: Mapping[str, Buffer]
    folds: Sequence[Fold]
    outputs: Sequence[Output]
    scalars: Mapping[str, float] = field(default_factory=dict)
    scan: Scan | None = None
    fractions: bool = False

    @property
    def fits(self) -> bool:
        """Whether operands broadcast to the shape."""
        shapes = [(*(1,) * (len(self.shape) - len(item.shape)), *item.shape) for item in self.operands.values()]
        return all(
            len(shape) == len(self.shape)
            and all(length in (1, whole) for length, whole in zip(shape, self.shape, strict=True))
            for shape in shapes
        )


Described = Rows | str
"""A description, or why the node is not described."""
