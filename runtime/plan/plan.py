"""Plan: native segments and Python steps that compute a region for inputs of given dtypes and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Generic, TypeVar

import numpy as np

from ..base.dataclass import dataclass
from ..ir.graph import Node, Value
from ..ir.shape_inference import Shape
from ..region.region import HostWeight, Region
from ..tensor.dtype import STRING, DType, of_numpy
from ..tensor.weight_array import Blocks, LazyWeight, Packed
from .kernel_api import Buffer, Launch

W = TypeVar("W")
COUNTER, GOES_ON, TRIPS, FUEL, AGAIN, CELLS = range(6)
"""Indices of a loop's cells: iterations done, whether another follows, trip count, iterations until the next deadline
check, whether native code repeats by itself; and the number of cells."""


@dataclass(eq=False)
class PythonStep:
    """A node that its NumPy reference computes.

    Attributes:
        inputs: location of each input, None if it is absent.
        captured: locations of the values that its subgraphs use.
        slots: slot of each output's array, None for objects and unused outputs.
        path: path of the subgraph that holds the node.
        constants: known values that its subgraphs use.
        frees: slots and objects that are dead after this step.
    """

    node: Node
    inputs: list[Buffer | Value | None]
    captured: dict[Value, Buffer | Value]
    slots: list[int | None]
    attributes: dict[str, Any]
    path: str = ""
    constants: dict[Value, np.ndarray | Blocks | LazyWeight] = field(default_factory=dict)
    frees: list[int | Value] = field(default_factory=list)


@dataclass(eq=False)
class NativeSegment:
    """Consecutive launches that run without the interpreter lock: instructions `start` to `stop`."""

    start: int
    stop: int
    parallel: bool
    frees: list[int | Value] = field(default_factory=list)


@dataclass(eq=False)
class Tap:
    """Passes an intermediate value to the caller; the name includes the path of its subgraph."""

    name: str
    location: Buffer | Value
    frees: list[int | Value] = field(default_factory=list)


@dataclass(eq=False)
class Branch:
    """Runs one of two lists of steps, depending on a condition."""

    condition: Buffer
    then: list[Any] = field(default_factory=list)
    other: list[Any] = field(default_factory=list)
    frees: list[int | Value] = field(default_factory=list)


@dataclass(eq=False)
class Loop:
    """Runs steps repeatedly.

    Attributes:
        operator: operator name, for errors.
        cells: its counters, indexed by `COUNTER` to `AGAIN`.
        trips: location of the trip count, None for an unbounded loop; condition: whether to start, None for always.
        continues: whether another iteration follows before the next deadline check; limit: trip count if it is known.
        is_native: whether the body is one native segment that repeats without Python until its fuel is used up.
    """

    operator: str
    cells: Buffer
    trips: Buffer | None
    condition: Buffer | None
    continues: Buffer
    limit: int | None = None
    body: list[Any] = field(default_factory=list)
    is_native: bool = False
    frees: list[int | Value] = field(default_factory=list)


@dataclass(eq=False)
class Mark:
    """A marker between launches while a plan is built.

    Attributes:
        kind: ``if``, ``else`` and ``end`` of a branch; ``loop`` and ``again``, the begin and end of a loop; ``tap``.
        step: the step that begins here.
        uses: buffers that must be live here.
    """

    kind: str
    step: Branch | Loop | Tap | None = None
    uses: Sequence[Buffer | Value] = ()


Step = PythonStep | NativeSegment | Tap | Branch | Loop


@dataclass(eq=False)
class BasePlan(Generic[W]):
    """Steps that compute a region for inputs of given dtypes and shapes, on the CPU or a device.

    Attributes:
        steps: in order.
        inputs: slot of an array of the run, or object, of each input; None if the plan knows its value.
        outputs: location of each output.
        arena: bytes of the arena.
        objects: constants that kernels cannot address.
        rest: the region planned and run afterwards on the values in `live`, whose shapes depend on data.
    """

    steps: list[Any] = field(default_factory=list)
    inputs: list[int | Value | None] = field(default_factory=list)
    outputs: list[Buffer | Value] = field(default_factory=list)
    arena: int = 0
    objects: dict[Value, W] = field(default_factory=dict)
    rest: Region[W] | None = None
    live: list[Any] = field(default_factory=list)


@dataclass(eq=False)
class Plan(BasePlan[HostWeight]):
    """Steps, bytecode and buffers for one input signature.

    Attributes:
        bailout: the flag that kernels set to have the run repeated in NumPy, None if no kernel sets one.
        code: bytecode; addresses are indices into `words`, jump targets count from the start of the segment.
        words: argument blocks, with constants and scalars filled in.
        arena_words: indices in `words` of arena addresses, and their offsets.
        slot_words: the same for each array of a run.
        slots: dtype and shape of each array of a run.
        output_slots: slots of newly allocated outputs; inplace_slots: slots of in-place inputs.
        launches: launch and node of each instruction, None for jumps.
        min_arena: lower bound of `arena`, the most bytes that are live at once.
        pinned: arrays whose addresses are in `words`.
        need: bytes of a run without its `weights` bytes; largest: the node with the largest output.
        work: multiplications of a run; hardest: the node with the most.
    """

    steps: list[Step] = field(default_factory=list)
    live: list[Buffer | Value] = field(default_factory=list)
    code: list[tuple[int, int, int, int]] = field(default_factory=list)
    words: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    arena_words: tuple[np.ndarray, np.ndarray] = field(
        default_factory=lambda: (np.zeros(0, np.int64), np.zeros(0, np.int64))
    )
    slot_words: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    slots: list[tuple[np.dtype[Any], tuple[int, ...]]] = field(default_factory=list)
    output_slots: list[int] = field(default_factory=list)
    inplace_slots: list[int] = field(default_factory=list)
    min_arena: int = 0
    pinned: list[np.ndarray] = field(default_factory=list)
    launches: list[tuple[Launch | None, Node | None]] = field(default_factory=list)
    bailout: Buffer | None = None
    need: int = 0
    weights: int = 0
    largest: str = ""
    work: float = 0.0
    hardest: str = ""


def described(node: Node) -> str:
    """A node for messages: its operator and its name, or that of its output."""
    name = node.name or next((value.name for value in node.outputs if value.name), "")
    return f"{node.op.name} {name!r}"


def addressable(dtype: DType | None) -> bool:
    """Whether kernels can address arrays of the dtype: elements of whole bytes."""
    return dtype is not None and dtype is not STRING and dtype.numpy is not None and dtype.bits >= 8


def plain(dtype: np.dtype[Any]) -> bool:
    """Whether kernels can address arrays of a NumPy dtype."""
    return (dtype.kind in "fiub" and dtype.itemsize <= 8) or dtype.name == "bfloat16"


def is_static(shape: Shape | None) -> bool:
    """Whether all lengths are known."""
    return shape is not None and all(isinstance(length, int) for length in shape)


def ints(shape: Shape | None) -> tuple[int, ...]:
    """The known lengths of a shape."""
    return tuple(length for length in shape or () if isinstance(length, int))


def size(shape: Shape | None) -> int:
    """Elements of a known shape."""
    count = 1
    for length in ints(shape):
        count *= length
    return count


def dtype_of(array: np.ndarray | Blocks | Packed | LazyWeight) -> DType:
    """The dtype of an array; STRING for strings."""
    if isinstance(array, Blocks | Packed):
        return array.dtype
    return STRING if array.dtype.kind in "OUT" else dtype_of_numpy(array.dtype)


def dtype_of_numpy(dtype: np.dtype[Any]) -> DType:
    """The dtype of a NumPy dtype; STRING for strings."""
    return STRING if dtype.kind in "OUT" else of_numpy(dtype)
