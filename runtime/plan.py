"""Plans: what a graph does for inputs of given dtypes and shapes, as stretches of native launches with steps in Python between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from .blocks import Blocks, Packed, Unread
from .dtype import STRING, DType, of_numpy
from .graph import Node, Value
from .infer import Shape
from .launch import Buffer, Launch
from .record import dataclass

if TYPE_CHECKING:
    from .program import Program


COUNTER, GOES_ON, TRIPS, FUEL, AGAIN, CELLS = range(6)
"""Cells of a loop: iterations done, whether there is a next one, how many there may be, iterations until Python looks at the clock, whether
the code repeats by itself; and their number."""


@dataclass(frozen=True)
class Signature:
    """What a plan has to know of an input: dtype and shape, and the contents of shape arithmetic."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Steered:
    """An input of one element whose value the plan is made for."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    value: int


@dataclass(eq=False)
class PythonStep:
    """A node that `compute` runs.

    Attributes:
        inputs: where each input is found: a buffer, a value among the objects, or None.
        captured: where the values are that its subgraphs use.
        slots: for each output, the slot that its array goes to, None for objects and outputs that nobody uses.
        path: of the graph that the node is in.
        constants: what its subgraphs use that is known ahead.
        frees: slots and objects that nothing uses any more.
    """

    node: Node
    inputs: list[Buffer | Value | None]
    captured: dict[Value, Buffer | Value]
    slots: list[int | None]
    attributes: dict[str, Any]
    path: str = ""
    constants: dict[Value, np.ndarray | Blocks | Unread] = field(default_factory=dict)
    frees: list[int | Value] = field(default_factory=list)


@dataclass(eq=False)
class Stretch:
    """Native launches that run without a look at Python: instructions from `start` to `stop`."""

    start: int
    stop: int
    parallel: bool
    frees: list[int | Value] = field(default_factory=list)


@dataclass(eq=False)
class Tap:
    """An intermediate value is handed out, under its name after the path of its subgraph."""

    name: str
    home: Buffer | Value
    frees: list[int | Value] = field(default_factory=list)


@dataclass(eq=False)
class Branch:
    """One of two lists of steps, by a condition that the run computes."""

    condition: Buffer
    taken: list[Any] = field(default_factory=list)
    other: list[Any] = field(default_factory=list)
    frees: list[int | Value] = field(default_factory=list)


@dataclass(eq=False)
class Loop:
    """Steps again and again.

    Attributes:
        operator: its name, for errors.
        cells: its numbers, as named by `COUNTER` and those behind it.
        trips: where the number of iterations is found, None where there is none; condition: whether it starts at all, None for yes.
        again: whether another iteration follows while there is fuel; limit: trips that are known ahead.
        whole: whether the body is one stretch that repeats by itself until it is out of fuel.
    """

    operator: str
    cells: Buffer
    trips: Buffer | None
    condition: Buffer | None
    again: Buffer
    limit: int | None = None
    body: list[Any] = field(default_factory=list)
    whole: bool = False
    frees: list[int | Value] = field(default_factory=list)


@dataclass(eq=False)
class Mark:
    """A place between the launches of a plan that is being made.

    Attributes:
        kind: ``if``, ``else`` and ``end`` of a branch; ``loop`` and ``again``, the begin and end of a loop; ``tap``.
        step: the step that begins here.
        uses: buffers that live here.
    """

    kind: str
    step: Branch | Loop | Tap | None = None
    uses: Sequence[Buffer | Value] = ()


Step = PythonStep | Stretch | Tap | Branch | Loop


@dataclass(eq=False)
class Plan:
    """A program for given shapes.

    Attributes:
        steps: in order.
        refusal: the word that kernels set to have the run done in Python, None where no kernel does.
        code: instructions of `native.walk`; places in `words` stand for addresses, targets count from the stretch's start.
        words: argument blocks, constants and numbers filled in.
        arena_words: places in `words` that count from the arena, and their offsets.
        slot_words: the same for each array that a run brings.
        slots: dtype and shape of each such array.
        texts: constants that are no plain memory.
        inputs: the slot or object of each input, None for those whose value the plan knows.
        outputs: where each output is found.
        made: slots of the arrays that a run makes for outputs; lent: slots of inputs that may be written into.
        rest: what runs afterwards on the values in `live`.
        launches: what each instruction calls, None for one that only jumps, and the node that asked for it.
        arena: bytes of the memory that results and scratch memory share; least: of those that live at once, of which it cannot have fewer.
        need: bytes of a run beside the weights, which are `weights` bytes; largest: the node that makes most of them.
        work: operations of a run; hardest: the node that does most of them.
    """

    steps: list[Step] = field(default_factory=list)
    code: list[tuple[int, int, int, int]] = field(default_factory=list)
    words: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    arena_words: tuple[np.ndarray, np.ndarray] = field(default_factory=lambda: (np.zeros(0, np.int64), np.zeros(0, np.int64)))
    slot_words: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    slots: list[tuple[np.dtype[Any], tuple[int, ...]]] = field(default_factory=list)
    inputs: list[int | Value | None] = field(default_factory=list)
    outputs: list[Buffer | Value] = field(default_factory=list)
    made: list[int] = field(default_factory=list)
    lent: list[int] = field(default_factory=list)
    arena: int = 0
    least: int = 0
    texts: dict[Value, np.ndarray | Blocks | Unread] = field(default_factory=dict)
    held: list[np.ndarray] = field(default_factory=list)
    rest: Program | None = None
    live: list[Buffer | Value] = field(default_factory=list)
    launches: list[tuple[Launch | None, Node | None]] = field(default_factory=list)
    refusal: Buffer | None = None
    need: int = 0
    weights: int = 0
    largest: str = ""
    work: float = 0.0
    hardest: str = ""


def addressable(dtype: DType | None) -> bool:
    """Whether kernels can be handed arrays of the dtype: one element in one or more bytes."""
    return dtype is not None and dtype is not STRING and dtype.numpy is not None and dtype.bits >= 8


def plain(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of numpy's dtype are memory that kernels may be handed as it is."""
    return (dtype.kind in "fiub" and dtype.itemsize <= 8) or dtype.name == "bfloat16"


def known(shape: Shape | None) -> bool:
    """Whether all lengths are known."""
    return shape is not None and all(isinstance(length, int) for length in shape)


def ints(shape: Shape | None) -> tuple[int, ...]:
    """Lengths that are known."""
    return tuple(length for length in shape or () if isinstance(length, int))


def size(shape: Shape | None) -> int:
    """Elements of a known shape."""
    count = 1
    for length in ints(shape):
        count *= length
    return count


def dtype_of(array: np.ndarray | Blocks | Packed | Unread) -> DType:
    """The dtype of an array, texts included."""
    if isinstance(array, Blocks | Packed):
        return array.dtype
    return STRING if array.dtype.kind in "OUT" else dtype_of_numpy(array.dtype)


def dtype_of_numpy(dtype: np.dtype[Any]) -> DType:
    """The dtype of numpy's name."""
    return STRING if dtype.kind in "OUT" else of_numpy(dtype)
