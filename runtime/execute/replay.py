"""Replay: repeats a run on the same arrays with almost no overhead over its native code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.limits import current
from ..plan.kernel_api import Buffer
from ..plan.plan import NativeSegment, Plan
from .workspace import Workspace

if TYPE_CHECKING:
    from .program import Program
    from .run_options import RunOptions


def repeatable(plan: Plan, feeds: Sequence[Any], output: int) -> bool:
    """Whether a plan is native code only, reads its inputs without copies, and allocates the output."""
    location = plan.outputs[output] if plan.outputs else None
    return (
        all(isinstance(step, NativeSegment) and not step.frees for step in plan.steps)
        and plan.rest is None
        and not plan.objects
        and all(isinstance(place, int) for place in plan.inputs)
        and all(isinstance(feed, np.ndarray) and feed.flags.c_contiguous for feed in feeds)
        and isinstance(location, Buffer)
        and location.allocation.slot in plan.output_slots
    )


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
    location, made = plan.outputs[output], [(slot, *plan.slots[slot]) for slot in plan.output_slots]

    def again() -> Any:
        if current().chosen:
            return program.run(feeds, run)[output]
        for slot, dtype, shape in made:
            memory.put(slot, np.empty(shape, dtype))
        if memory.bailout is not None:
            memory.bailout[0] = 0
        for start, stop, threads in steps:
            memory.walk(start, stop, threads)
            if memory.bailout is not None and memory.bailout[0]:
                return program.run(feeds, replace(run, native=False))[output]
        found = memory.get(location)
        for slot, _, _ in made:
            memory.arrays[slot] = None
        return found

    return again
