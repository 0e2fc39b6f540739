"""Replay: repeats a run on arrays that stay with almost no overhead over its native code."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.dataclass import dataclass
from ..base.limits import current
from ..plan.kernel_api import Buffer
from ..plan.plan import NativeSegment, Plan
from .workspace import Workspace

if TYPE_CHECKING:
    from .program import Program
    from .run_options import RunOptions


def repeatable(plan: Plan, feeds: Sequence[Any], output: int) -> bool:
    """Whether a plan is native code only, reads its inputs without copies, and allocates the output."""
    return (
        _is_native(plan)
        and not any(step.frees for step in plan.steps)
        and all(isinstance(feed, np.ndarray) and feed.flags.c_contiguous for feed in feeds)
        and _allocated_slot(plan, output) is not None
    )


def _is_native(plan: Plan) -> bool:
    """Whether a plan is native code that reads its inputs by address."""
    return (
        all(isinstance(step, NativeSegment) for step in plan.steps)
        and plan.rest is None
        and not plan.objects
        and all(isinstance(place, int) for place in plan.inputs)
    )


def _allocated_slot(plan: Plan, output: int) -> int | None:
    """The slot of an output that each run allocates, None for others."""
    location = plan.outputs[output] if plan.outputs else None
    slot = location.allocation.slot if isinstance(location, Buffer) else None
    return slot if slot in plan.output_slots else None


def repeated(program: Program, feeds: Sequence[np.ndarray], run: RunOptions, output: int) -> Callable[[], Any] | None:
    """A function that computes one output from the current contents of the arrays `feeds`, None if the plan is not
    `repeatable`.

    In-place inputs are overwritten. One thread at a time may call it.
    """
    plan = program.prepare(feeds, run).plan
    if not repeatable(plan, feeds, output):
        return None
    memory = Workspace(plan)
    for slot, feed in zip(plan.inputs, feeds, strict=True):
        assert isinstance(slot, int)
        memory.put(slot, feed)
    steps = [
        (step.start, step.stop, run.threads if step.parallel else 1)
        for step in plan.steps
        if isinstance(step, NativeSegment)
    ]
    location = plan.outputs[output]

    def again() -> Any:
        if current().chosen:
            return program.run(feeds, run)[output]
        for slot in plan.output_slots:
            memory.new_output(slot)
        if memory.bailout is not None:
            memory.bailout[0] = 0
        for start, stop, threads in steps:
            memory.walk(start, stop, threads)
            if memory.bailout is not None and memory.bailout[0]:
                return program.run(feeds, replace(run, native=False))[output]
        found = memory.get(location)
        for slot in plan.output_slots:
            memory.arrays[slot] = None
        return found

    return again


IN_PLACE_FROM = 1 << 24
"""Bytes of inputs from which they are overwritten where that is possible: less stays in the caches."""


@dataclass(frozen=True)
class _Overwriting:
    """The inputs that launches overwrite with outputs.

    Attributes:
        begin: the first instruction that does; from it on no launch finds that the run must be repeated.
        sources: slot of the input, and instruction, by the slot of the output.
        last: the last instruction that uses a slot.
    """

    begin: int = 0
    sources: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    last: Mapping[int, int] = field(default_factory=dict)


def _overwriting(plan: Plan, taken: Sequence[int]) -> _Overwriting:
    uses: dict[int, list[int]] = defaultdict(list)
    for position, (launch, _) in enumerate(plan.launches):
        if launch is None:
            return _Overwriting()
        for buffer in launch.arguments:
            if isinstance(buffer, Buffer) and buffer.allocation.slot is not None:
                uses[buffer.allocation.slot].append(position)
    found: dict[int, tuple[int, int]] = {}
    for position, (launch, _) in enumerate(plan.launches):
        for source, target in launch.in_place if launch else ():
            one, other = source.allocation.slot, target.allocation.slot
            whole = all(each.nbytes == each.allocation.nbytes for each in (source, target))
            if one is not None and one in plan.inputs and other is not None and other in taken and whole:
                last, first = uses[one][-1], uses[other][0]
                if position == last == first and uses[one].count(position) == 1:
                    found[other] = (one, position)
    begin = min((position for _, position in found.values()), default=0)
    flag = None if plan.bailout is None else plan.bailout.allocation
    bails = any(
        isinstance(argument, Buffer) and argument.allocation is flag
        for launch, _ in plan.launches[begin:]
        if launch is not None
        for argument in launch.arguments
    )
    large = sum(math.prod(shape) * dtype.itemsize for dtype, shape in map(plan.slots.__getitem__, found))
    ends = {slot: positions[-1] for slot, positions in uses.items()}
    return _Overwriting() if bails or large < IN_PLACE_FROM else _Overwriting(begin, found, ends)


class Replay:
    """A plan that runs again and again on arrays of the caller, which stay between runs.

    There are two sets of arrays that take turns, so that what one run computes is fed to the next without a copy. One
    thread at a time may use it.

    Attributes:
        outputs: dtype and shape of each output.
        overwrote: whether the last run came to its end, and so has overwritten inputs, though it may have raised.
    """

    def __init__(self, plan: Plan, threads: int, slots: Mapping[int, int], taken: Sequence[int]) -> None:
        first = Workspace(plan)
        self._turns = (first, Workspace(plan, first))
        self._inputs, self._taken = slots, taken
        self._scalars: tuple[dict[int, np.ndarray], dict[int, np.ndarray]] = {}, {}
        self.outputs = [plan.slots[slot] for slot in taken]
        self._overwriting = _overwriting(plan, taken)
        self._steps = [
            (start, stop, threads if step.parallel else 1)
            for step in plan.steps
            if isinstance(step, NativeSegment)
            for start, stop in _cut(step, self._overwriting.begin)
        ]
        self.overwrote = False

    def overwrites(self, places: Sequence[int], target: int) -> bool:
        """Whether a run writes output `target` where it reads the inputs `places`, so that both take one array."""
        source, position = self._overwriting.sources.get(self._taken[target], (None, 0))
        slots = {self._inputs[index] for index in places if index in self._inputs}
        return source in slots and all(self._overwriting.last.get(slot, 0) < position for slot in slots - {source})

    def feed(self, turn: int, place: int, array: np.ndarray) -> None:
        """Give an input its array in a set."""
        slot, memory = self._inputs.get(place), self._turns[turn]
        if slot is not None and memory.arrays[slot] is not array:
            memory.put(slot, array)

    def feed_elements(self, turn: int, place: int, array: np.ndarray) -> None:
        """Give an input the elements of an array, which is not read later if it is a scalar: to copy that takes less
        time than to tell each launch its address."""
        if array.ndim:
            self.feed(turn, place, array)
            return
        scalars = self._scalars[turn]
        if place in scalars:
            scalars[place][...] = array
        else:
            scalars[place] = array.copy()
            self.feed(turn, place, scalars[place])

    def take(self, turn: int, place: int, array: np.ndarray) -> None:
        """Give an output its array in a set."""
        self._turns[turn].put(self._taken[place], array)

    def run(self, turn: int) -> bool:
        """Compute the outputs of a set; false where kernels met values that they do not compute."""
        memory, self.overwrote = self._turns[turn], False
        if memory.bailout is not None:
            memory.bailout[0] = 0
        for step in self._steps:
            try:
                memory.walk(*step)
            finally:
                bailed = memory.bailout is not None and bool(memory.bailout[0])
                self.overwrote = step is self._steps[-1] and memory.code.ended and not bailed
            if bailed:
                return False
        return True


def _cut(step: NativeSegment, begin: int) -> list[tuple[int, int]]:
    """First and last instructions of a segment, before and from `begin`."""
    if step.start < begin < step.stop:
        return [(step.start, begin), (begin, step.stop)]
    return [(step.start, step.stop)]


def replay(program: Program, feeds: Sequence[np.ndarray], run: RunOptions, places: Sequence[int]) -> Replay | None:
    """A replay of the plan for these feeds, None if it is not native code that allocates each output.

    Args:
        places: for each input of the program, the number by which `Replay.feed` knows it.
    """
    plan = program.prepare(feeds, run).plan
    taken = [_allocated_slot(plan, output) for output in range(len(plan.outputs))]
    if not _is_native(plan) or None in taken or len(set(taken)) < len(taken):
        return None
    slots: dict[int, int] = {}
    for index, slot in zip(places, plan.inputs, strict=True):
        assert isinstance(slot, int)
        slots[index] = slot
    return Replay(plan, run.threads, slots, [slot for slot in taken if slot is not None])
