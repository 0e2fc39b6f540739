"""Planners of f32 for 16-bit numbers: launches between what widens their inputs and what rounds their results.

Weights stay as narrow as they are, in the layout that the kernel of f32 takes, and are widened into memory of the run.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from ...runtime.fusion import NARROW, Apply, Chain
from ...runtime.kernel import range_kernel
from ...runtime.launch import Buffer, Launch, Planned, Planner, Room, Step, View, briefly
from ...runtime.native import share
from ...runtime.record import dataclass
from ..math.lane_kernel import KINDS, widen

F32 = np.dtype(np.float32)
LARGE = 1 << 16
"""Elements from which a constant is not kept in f32."""
PIECE = 4096


class Inexact(Exception):
    """A layout is no rearrangement of the weight, and not to be kept."""


@range_kernel
def widened(args: Any, part: Any, parts: Any) -> None:
    """Narrow numbers, f32, how many, kind of the narrow ones."""
    first, last = share((args[2] + PIECE - 1) // PIECE, part, parts)
    for piece in range(first, last):
        begin = piece * PIECE
        widen(args[3], args[0] + 2 * begin, args[1] + 4 * begin, min(PIECE, args[2] - begin), np.float32(1))


@dataclass(eq=False)
class Wide(Step):
    """A step whose narrow inputs are f32, made by launches before it."""

    before: list[Launch] = field(default_factory=list)
    narrow: dict[int, Buffer] = field(default_factory=dict)
    made: dict[int, np.ndarray] = field(default_factory=dict)
    rearranging: bool = True

    def constant(self, index: int) -> np.ndarray | None:
        """Large constants only where their layouts may be kept."""
        if index not in self.narrow:
            return Step.constant(self, index)
        if self.rearranging and index not in self.made:
            self.made[index] = briefly(self.narrow[index]).astype(np.float32)
        return self.made.get(index)

    def known(self, index: int) -> bool:
        """As `constant` gives them."""
        return self.rearranging if index in self.narrow else Step.known(self, index)

    def packed(self, index: int, layout: Any, pack: Any) -> Buffer:
        """Another layout, kept narrow. Raises Inexact where it holds other numbers than the weight."""
        kept = self.narrowed(index, layout, pack)
        return Step.packed(self, index, layout, pack) if kept is None else self.wide(kept)

    def narrowed(self, index: int, layout: Any, pack: Any) -> Buffer | None:
        """As `packed`, not widened."""
        if index not in self.narrow:
            return None
        weight = self.narrow[index]
        key = (id(weight.room.constant), weight.offset, weight.shape, layout, "narrow")
        if key not in self.cache:
            made = pack(briefly(weight).astype(np.float32))
            kept = made.astype(weight.dtype)
            if (kept.astype(np.float32) != made).any():
                raise Inexact
            self.cache[key] = (kept, weight.room.constant)
        return self.held(self.cache[key][0])

    def wide(self, buffer: Buffer) -> Buffer:
        """The numbers of a narrow buffer as f32, in memory of the run."""
        target = self.scratch(4 * buffer.count).view(buffer.shape, dtype=F32)
        self.before.append(_widening(self, buffer, target))
        return target


def _widening(step: Step, source: Buffer, target: Buffer) -> Launch:
    arguments = (source, target, source.count, KINDS[source.dtype.name])
    return Launch(widened, arguments, step.parts(-(-source.count // PIECE), source.count / 4))


def _planned(step: Step, planner: Planner, rearranging: bool) -> Planned:
    results = [None if item is None else (F32, item[1]) if item[0].name in NARROW else item for item in step.results]
    own = step.outputs if results == step.results else {}
    inner = Wide(step.node, list(step.inputs), step.attributes, results, step.threads, step.cache, own, step.rooms, step.refusal)
    inner.rearranging = rearranging
    for index, buffer in enumerate(step.inputs):
        if buffer is None or buffer.dtype.name not in NARROW:
            continue
        if not step.known(index):
            inner.inputs[index] = inner.wide(buffer)
        elif buffer.count < LARGE:
            inner.inputs[index] = inner.held(briefly(buffer).astype(np.float32))
        else:
            inner.narrow[index] = buffer
            inner.inputs[index] = Buffer(F32, buffer.shape, Room(4 * buffer.count))
    found = planner(inner)
    if found is None or isinstance(found, View | Chain):
        return None
    launches: list[Any] = [found] if isinstance(found, Launch) else list(found)
    for index, buffer in inner.narrow.items():
        place = inner.inputs[index]
        used = any(isinstance(item, Buffer) and place is not None and item.room is place.room for each in launches for item in each.arguments)
        if used and place is not None:
            step.rooms.append(place.room)
            inner.before.append(_widening(step, buffer, place))
    pairs = [(wide, step.output(index)) for index, wide in inner.outputs.items()]
    after = [Chain((Apply("Cast", (wide,), (), F32, target.dtype),), target) for wide, target in pairs if wide is not target]
    return [*inner.before, *launches, *after]


def of_halves(planner: Planner) -> Planner:
    """The planner of f32, for narrow inputs too."""

    def plan(step: Step) -> Planned:
        if not any(buffer is not None and buffer.dtype.name in NARROW for buffer in step.inputs):
            return planner(step)
        if any(item is not None and item[0].name not in (*NARROW, "float32") for item in step.results):
            return None
        before = len(step.rooms)
        try:
            return _planned(step, planner, True)
        except Inexact:
            del step.rooms[before:]
            return _planned(step, planner, False)

    return plan
