"""Device plans: launches, transfers and host steps in order, and the arena offset of each buffer."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...base.dataclass import dataclass
from ...ir.graph import Node, Value
from ...plan.arena import place
from ...plan.kernel_api import Allocation, Buffer
from ...plan.plan import BasePlan
from ...tensor.dtype import DType
from ...tensor.stored_tensor import StoredTensor
from ...tensor.weight_array import as_array
from ..kernel.kernel import Launch
from ..memory.dynamic_length import Sized, parts
from ..memory.host_weight import DeviceWeight
from .step_order import flags_placed, flags_together

if TYPE_CHECKING:
    from ..memory.pool import Weight

Location: TypeAlias = Buffer | Sized | Value
"""A value location: a device buffer, or an object of the run."""


@dataclass(eq=False)
class HostStep:
    """A node that runs on the CPU, by `Op.compute`.

    Attributes:
        why: it does not run on the device.
        captured: values that its subgraphs use, where they are.
    """

    node: Node
    why: str
    inputs: list[Value | None]
    captured: dict[Value, Buffer | Value]


@dataclass(eq=False)
class Control:
    """A node whose `compute` controls the run; tensors, including those its subgraphs capture, stay on the device."""

    node: Node
    inputs: list[Buffer | Value | None]
    captured: dict[Value, Buffer | Value]


@dataclass(eq=False)
class Upload:
    """Copy of a value to the device."""

    value: Value
    buffer: Buffer


@dataclass(eq=False)
class Draw:
    """Fill of a device buffer with random bits."""

    buffer: Buffer


@dataclass(eq=False)
class Download:
    """Copy of a value to the host."""

    buffer: Buffer
    value: Value


@dataclass(eq=False)
class Plan(BasePlan[DeviceWeight]):
    """Launches, transfers and host steps for one set of input shapes.

    Attributes:
        nodes: for each step the node it comes from, None for copies of inputs and outputs.
        weights: arrays that stay in device memory, outside the arena; uploaded: those that are there already.
        flags: bytes to look at when all is done, and the error that they stand for; flagged: all of them as one array.
        taps: locations of the values that are passed to the caller.
    """

    steps: list[Launch | HostStep | Control | Draw | Upload | Download] = field(default_factory=list)
    nodes: list[Node | None] = field(default_factory=list)
    live: list[Location] = field(default_factory=list)
    weights: dict[int, np.ndarray] = field(default_factory=dict)
    uploaded: dict[int, Weight] = field(default_factory=dict)
    flags: list[tuple[Buffer, str]] = field(default_factory=list)
    flagged: Buffer | None = None
    taps: dict[str, Location] = field(default_factory=dict)


@dataclass(frozen=True)
class OnDevice:
    """Description of an input that is on the device."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class OnHost:
    """Description of an input on the host; None for unknown, or for inputs that are not tensors.

    Attributes:
        data: the bytes of an input whose values decide what a node is.
    """

    dtype: DType | None
    shape: tuple[int, ...] | None
    data: bytes | None = None


@dataclass(frozen=True, eq=False)
class Fixed:
    """An input with its default: a weight."""

    tensor: StoredTensor


def assign_offsets(plan: Plan) -> None:
    """Assign arena offsets to all buffers except weights and inputs, and collect the weights."""
    arena: dict[int, Allocation] = {}
    for position, step in enumerate(plan.steps):
        for buffer in buffers_of(step):
            _use(buffer, position, arena, plan.weights)
    for location in (*plan.outputs, *plan.live, *plan.taps.values()):
        for buffer in parts(location):
            _use(buffer, len(plan.steps), arena, plan.weights)
    flags = [buffer for buffer, _ in plan.flags]
    plan.flagged = flags_together(flags, len(plan.steps))
    for flag in flags:
        arena.pop(id(flag.allocation), None)
    allocations = list(arena.values())
    plan.arena = place([*allocations, plan.flagged.allocation] if plan.flagged is not None else allocations)
    flags_placed(flags, plan.flagged)


def buffers_of(step: Launch | HostStep | Control | Draw | Upload | Download) -> list[Buffer]:
    """The device buffers of a step."""
    if isinstance(step, Launch):
        return [argument for argument in step.arguments if isinstance(argument, Buffer)]
    if isinstance(step, HostStep):
        return [location for location in step.captured.values() if isinstance(location, Buffer)]
    if isinstance(step, Control):
        return [location for location in (*step.inputs, *step.captured.values()) if isinstance(location, Buffer)]
    return [step.buffer]


def _use(buffer: Buffer, at: int, arena: dict[int, Allocation], weights: dict[int, np.ndarray]) -> None:
    allocation = buffer.allocation
    if allocation.constant is not None:
        weights[id(allocation.constant)] = as_array(allocation.constant)
    elif allocation.slot is None:
        arena[id(allocation)] = allocation
        allocation.use(at)
