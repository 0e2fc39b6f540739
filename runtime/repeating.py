"""Runs that are repeated: the arrays of a plan are found once, and a run over what they hold then is little more than its native code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .launch import Buffer
from .limits import current
from .plan import Plan, Stretch
from .workspace import Workspace

if TYPE_CHECKING:
    from .program import Program, Run


def repeatable(plan: Plan, feeds: Sequence[Any], output: int) -> bool:
    """Whether runs of a plan are native code alone that reads arrays where they are, and make an array of their own for an output."""
    home = plan.outputs[output] if plan.outputs else None
    return (
        all(isinstance(step, Stretch) and not step.frees for step in plan.steps)
        and plan.rest is None
        and not plan.texts
        and all(isinstance(place, int) for place in plan.inputs)
        and all(isinstance(feed, np.ndarray) and feed.flags.c_contiguous for feed in feeds)
        and isinstance(home, Buffer)
        and home.room.slot in plan.made
    )


def repeated(program: Program, feeds: Sequence[np.ndarray], run: Run, output: int) -> Callable[[], Any] | None:
    """What computes one output for what the arrays hold at each call, for one thread at a time; inputs that are lent are written into.

    None where the plan for the arrays is not `repeatable`.
    """
    plan = program.prepare(feeds, run).plan
    if not repeatable(plan, feeds, output):
        return None
    memory = Workspace(plan)
    for slot, feed in zip(plan.inputs, feeds, strict=True):
        assert isinstance(slot, int)
        memory.put(slot, feed)
    steps = [(step.start, step.stop, run.threads if step.parallel else 1) for step in plan.steps if isinstance(step, Stretch)]
    home, made = plan.outputs[output], [(slot, *plan.slots[slot]) for slot in plan.made]

    def again() -> Any:
        if current().chosen:
            return program.run(feeds, run)[output]
        for slot, dtype, shape in made:
            memory.put(slot, np.empty(shape, dtype))
        if memory.refusal is not None:
            memory.refusal[0] = 0
        for start, stop, threads in steps:
            memory.walk(start, stop, threads)
            if memory.refusal is not None and memory.refusal[0]:
                return program.run(feeds, replace(run, native=False))[output]
        found = memory.get(home)
        for slot, _, _ in made:
            memory.arrays[slot] = None
        return found

    return again
