"""Plans of a device: steps in order, launches and copies and nodes on the CPU, and where in device memory each of their buffers lies."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..blocks import Blocks, Packed, numbers
from ..dtype import DType
from ..graph import Node, Value
from ..launch import Buffer, Room
from ..memory import place
from ..record import dataclass
from ..tensor import Tensor
from .kernel import Launch
from .order import flags_placed, flags_together
from .sized import Sized, parts

if TYPE_CHECKING:
    from .pool import Weight
    from .program import Program

Home: TypeAlias = Buffer | Sized | Value
"""Where a value is: on the device, or among the objects of a run."""


@dataclass(eq=False)
class HostStep:
    """A node that its `compute` runs.

    Attributes:
        why: it has no place on the device.
        captured: values that its subgraphs use, where they are.
    """

    node: Node
    why: str
    inputs: list[Value | None]
    captured: dict[Value, Buffer | Value]


@dataclass(eq=False)
class Control:
    """A node whose `compute` decides what happens to tensors; they, and what its subgraphs use, stay where they are."""

    node: Node
    inputs: list[Buffer | Value | None]
    captured: dict[Value, Buffer | Value]


@dataclass(eq=False)
class Upload:
    """A value's copy on the device."""

    value: Value
    buffer: Buffer


@dataclass(eq=False)
class Draw:
    """Random bits for memory on the device."""

    buffer: Buffer


@dataclass(eq=False)
class Download:
    """A value's copy on the host."""

    buffer: Buffer
    value: Value


@dataclass(eq=False)
class Plan:
    """What a graph does for inputs of given dtypes and shapes.

    Attributes:
        steps: in order.
        nodes: for each step the node it comes from, None for copies of inputs and outputs.
        fed: for each input, the value that it is among the objects of a run, or the slot of an array that is on the device.
        outputs, live: values among the objects, or buffers; live ones also arrays whose lengths are read.
        arena: bytes of device memory beside weights; weights: arrays that are there all the time, and `uploaded` those that are already.
        flags: bytes to look at when all is done, and the error that they stand for; flagged: all of them as one array.
        rest: what runs afterwards on the values in `live`.
    """

    steps: list[Launch | HostStep | Control | Draw | Upload | Download] = field(default_factory=list)
    nodes: list[Node | None] = field(default_factory=list)
    fed: list[Value | int] = field(default_factory=list)
    outputs: list[Buffer | Value] = field(default_factory=list)
    arena: int = 0
    weights: dict[int, np.ndarray] = field(default_factory=dict)
    uploaded: dict[int, Weight] = field(default_factory=dict)
    objects: dict[Value, np.ndarray | Blocks | Packed] = field(default_factory=dict)
    flags: list[tuple[Buffer, str]] = field(default_factory=list)
    flagged: Buffer | None = None
    rest: Program | None = None
    live: list[Home] = field(default_factory=list)
    taps: dict[str, Home] = field(default_factory=dict)


@dataclass(frozen=True)
class OnDevice:
    """What a plan has to know of an input that is on the device already."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class OnHost:
    """What a plan has to know of an input on the host; None stands for what is not known or no tensor.

    Attributes:
        data: the bytes of an input whose values decide what a node is.
    """

    dtype: DType | None
    shape: tuple[int, ...] | None
    data: bytes | None = None


@dataclass(frozen=True, eq=False)
class Fixed:
    """An input that has its default: a weight."""

    tensor: Tensor


def laid_out(plan: Plan) -> None:
    """Give every buffer of a plan that is no weight and no input its place in the arena, and collect the weights."""
    arena: dict[int, Room] = {}
    for position, step in enumerate(plan.steps):
        for buffer in buffers_of(step):
            _use(buffer, position, arena, plan.weights)
    for home in (*plan.outputs, *plan.live, *plan.taps.values()):
        for buffer in parts(home):
            _use(buffer, len(plan.steps), arena, plan.weights)
    flags = [buffer for buffer, _ in plan.flags]
    plan.flagged = flags_together(flags, len(plan.steps))
    for flag in flags:
        arena.pop(id(flag.room), None)
    rooms = list(arena.values())
    plan.arena = place([*rooms, plan.flagged.room] if plan.flagged is not None else rooms)
    flags_placed(flags, plan.flagged)


def buffers_of(step: Launch | HostStep | Control | Draw | Upload | Download) -> list[Buffer]:
    """Device memory that a step uses."""
    if isinstance(step, Launch):
        return [argument for argument in step.arguments if isinstance(argument, Buffer)]
    if isinstance(step, HostStep):
        return [home for home in step.captured.values() if isinstance(home, Buffer)]
    if isinstance(step, Control):
        return [home for home in (*step.inputs, *step.captured.values()) if isinstance(home, Buffer)]
    return [step.buffer]


def _use(buffer: Buffer, at: int, arena: dict[int, Room], weights: dict[int, np.ndarray]) -> None:
    room = buffer.room
    if room.constant is not None:
        weights[id(room.constant)] = numbers(room.constant)
    elif room.slot is None:
        arena[id(room)] = room
        room.first = at if room.first < 0 else min(room.first, at)
        room.last = max(room.last, at)
