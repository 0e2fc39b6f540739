"""Launches: how an operator says which kernels compute a node, for given dtypes and shapes.

    @native(softmax)
    def plan_softmax(step: Step) -> Plan:
        x = step.inputs[0]
        if x.dtype != np.float32:
            return None                                    # compute() in NumPy does it
        y = step.output(0)
        return Launch(softmax_rows, (x, y, rows, length), step.parts(rows, 8 * x.count))

Arrays are contiguous. Arguments are buffers, whose addresses the kernel finds in its argument block, ints, and floats (`native.number`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from . import registry
from .blocks import Unread, numbers
from .record import dataclass

if TYPE_CHECKING:
    from .fusion import Chain
    from .graph import Node
    from .op import Op

CALL, UNLESS, JUMP = 0, 1, 2
"""Instructions: call a kernel (address, arguments, parts); go to instruction `b` unless the byte is set whose address is at `a`; go to `a`."""
ALIGNMENT = 64
SMALLEST_SHARE = 40_000
"""Scalar operations below which a part of a step is not worth a thread's attention; an operation is about a nanosecond's fraction."""
PARTS_PER_THREAD = 4


@dataclass(eq=False)
class Room:
    """Memory that buffers lie in.

    Attributes:
        nbytes: its size.
        constant: the array that it is, for weights.
        slot: position among the arrays that every run brings: inputs first, then outputs.
        lent: whether the array of the slot may be written into, and be an output.
        first, last: positions of the first and last step that use it.
        at: byte offset in the arena, set by the planner.
    """

    nbytes: int
    constant: np.ndarray | Unread | None = None
    slot: int | None = None
    lent: bool = False
    first: int = -1
    last: int = -1
    at: int = -1


@dataclass(frozen=True, eq=False)
class Buffer:
    """A contiguous array of a plan.

    Attributes:
        offset: bytes from the start of the room.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    room: Room
    offset: int = 0

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.count * self.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one index to the next along each axis."""
        found: list[int] = []
        step = 1
        for length in reversed(self.shape):
            found.insert(0, step)
            step *= length
        return tuple(found)

    def view(self, shape: Sequence[int], start: int = 0, dtype: np.dtype[Any] | None = None) -> Buffer:
        """The same memory from element `start` on, with another shape."""
        return Buffer(dtype or self.dtype, tuple(shape), self.room, self.offset + start * self.dtype.itemsize)


Argument = Buffer | int | float


@dataclass(frozen=True)
class Launch:
    """One call of a range kernel, cut into parts that any thread may compute; of a device kernel, on `parts` blocks.

    Attributes:
        output: what it computes, where it can take in what follows.
        takes: the launch that computes an element-wise chain of the output too, None where it cannot.
        copied: what it copies as it is, byte by byte, and where to, when that is all it does.
    """

    kernel: Any
    arguments: Sequence[Argument]
    parts: int = 1
    output: Buffer | None = None
    takes: Callable[[Chain, Buffer], Launch | None] | None = None
    copied: tuple[Buffer, Buffer] | None = None


@dataclass(frozen=True)
class View:
    """The output is a buffer that exists."""

    buffer: Buffer


Planned: TypeAlias = "Launch | View | Chain | list[Launch] | list[Chain] | None"


def parts_for(threads: int, limit: int, work: float, finer: int = 1) -> int:
    """How many parts to cut a step into that has `limit` rows and takes `work` scalar operations; `finer` times as many, and as small, as usual."""
    least = SMALLEST_SHARE // finer
    if threads == 1 or work < 2 * least or limit < 2:
        return 1
    wanted = int(min(limit, work // least, finer * PARTS_PER_THREAD * threads))
    return max(1, wanted if wanted < threads else wanted // threads * threads)


@dataclass(eq=False)
class Step:
    """A node as its planner sees it.

    Attributes:
        inputs: buffers, None for an optional input that is absent.
        attributes: all of them, defaults filled in.
        results: dtype and shape of each output, None for one that nobody uses.
        threads: how many will run the plan.
        cache: what has been made of constants, and the constants, whose ids are part of the keys; kept for all plans of a session.
        refusal: a word that kernels set which meet values they do not compute, an index out of range for one. The run is then done in
            Python, which does, or says what is wrong. Such kernels touch nothing outside of their buffers all the same.
        alone: whether nothing but this step uses the memory of an input, which then may become that of an output.
    """

    node: Node
    inputs: list[Buffer | None]
    attributes: dict[str, Any]
    results: list[tuple[np.dtype[Any], tuple[int, ...]] | None]
    threads: int
    cache: dict[Any, Any]
    outputs: dict[int, Buffer] = field(default_factory=dict)
    rooms: list[Room] = field(default_factory=list)
    refusal: Buffer = field(default_factory=lambda: refusal())
    alone: Callable[[Buffer], bool] = lambda buffer: False

    def output(self, index: int = 0) -> Buffer:
        """The buffer for an output that is used."""
        if index not in self.outputs:
            result = self.results[index]
            assert result is not None
            self.outputs[index] = self._new(*result)
        return self.outputs[index]

    def wanted(self, index: int) -> bool:
        """Whether anything uses output `index`."""
        return index < len(self.results) and self.results[index] is not None

    def scratch(self, nbytes: int) -> Buffer:
        """Memory for the launches of this step alone."""
        return self._new(np.dtype(np.uint8), (nbytes,))

    def constant(self, index: int) -> np.ndarray | None:
        """Values of an input that is known."""
        buffer = self.inputs[index] if index < len(self.inputs) else None
        return None if buffer is None or buffer.room.constant is None else _part(buffer, numbers(buffer.room.constant))

    def known(self, index: int) -> bool:
        """Whether an input is a constant, which is not read for that."""
        buffer = self.inputs[index] if index < len(self.inputs) else None
        return buffer is not None and buffer.room.constant is not None

    def held(self, array: np.ndarray) -> Buffer:
        """A constant buffer."""
        plain = np.ascontiguousarray(array).reshape(array.shape)
        return Buffer(plain.dtype, plain.shape, Room(plain.nbytes, constant=plain))

    def packed(self, index: int, layout: Any, pack: Callable[[np.ndarray], np.ndarray]) -> Buffer:
        """A constant input in another layout, which is made once for a session."""
        return self.held(self.derived(index, layout, pack))

    def narrowed(self, index: int, layout: Any, pack: Callable[[np.ndarray], np.ndarray]) -> Buffer | None:
        """As `packed`, for a kernel that widens what is kept narrower than it computes; None for what is not."""
        return None

    def derived(self, index: int, kind: Any, make: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """What `make` gives for a constant input, once for a session; the input is not held for it."""
        buffer = self.inputs[index]
        assert buffer is not None
        constant = buffer.room.constant
        key = (id(constant), buffer.offset, buffer.shape, kind)
        if key not in self.cache:
            array = briefly(buffer)
            made = make(array)
            self.cache[key] = (made.copy() if np.may_share_memory(made, array) and isinstance(constant, Unread) else made, constant)
        found: np.ndarray = self.cache[key][0]
        return found

    def parts(self, limit: int, work: float, finer: int = 1) -> int:
        """How many parts to cut a step into that has `limit` rows and takes `work` scalar operations; see `parts_for`."""
        return parts_for(self.threads, limit, work, finer)

    def _new(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Buffer:
        room = Room(math.prod(shape) * dtype.itemsize)
        self.rooms.append(room)
        return Buffer(dtype, shape, room)


def briefly(buffer: Buffer) -> np.ndarray:
    """The elements of a buffer of constants, which are not held for it."""
    constant = buffer.room.constant
    assert constant is not None
    return _part(buffer, constant.briefly() if isinstance(constant, Unread) else constant)


def _part(buffer: Buffer, array: np.ndarray) -> np.ndarray:
    """The elements of a buffer in the constant of its room."""
    whole = array.reshape(-1).view(np.uint8)[buffer.offset : buffer.offset + buffer.nbytes]
    return whole.view(buffer.dtype).reshape(buffer.shape)


def refusal() -> Buffer:
    """The word of a plan that kernels set to have the run done in Python."""
    return Buffer(np.dtype(np.int64), (1,), Room(8))


Planner = Callable[[Step], Planned]

PLANNERS: dict[Op, Planner] = {}
"""What says how to compute an operator natively, from the files named ``*_kernel.py``."""


_by_element: list[Planner] = []
EMPTY: set[Op] = set()
"""Operators whose planners cope with inputs without elements."""


def native(*operators: Op, empty: bool = False) -> Callable[[Planner], Planner]:
    """Register the planner of operators; one that says `empty` is handed inputs without elements too."""

    def registered(planner: Planner) -> Planner:
        for operator in operators:
            PLANNERS[operator] = planner
            if empty:
                EMPTY.add(operator)
        return planner

    return registered


def native_by_element(planner: Planner) -> Planner:
    """Register the planner of operators that have a scalar function, and none of their own."""
    _by_element[:] = [planner]
    return planner


def planner_of(operator: Op) -> Planner | None:
    """What says how to compute an operator natively, None where nothing does."""
    registry.load_planners(operator)
    return PLANNERS.get(operator) or (_by_element[0] if operator.scalar is not None and _by_element else None)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
