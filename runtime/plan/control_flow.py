"""Control flow in plans: operators with subgraphs whose nodes become part of the plan around them.

    @control(if_)
    def plan_if(planner: Planner, task: Task, tasks: deque[Task]) -> bool: ...

A control appends subgraph nodes to the plan or prepends them to the remaining tasks, and returns whether it did.
Otherwise the NumPy reference runs each subgraph as a separate program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ..base.process_cache import PROCESS, owned

if TYPE_CHECKING:
    from ..ir.op import Op

Control = TypeVar("Control", bound=Callable[..., bool])

CONTROLS: dict[Op, Callable[..., bool]] = owned({}, PROCESS)
"""The control-flow planner of each operator with subgraphs."""


class Unplanned(Exception):
    """A subgraph cannot be inlined into the outer plan."""


def control(*operators: Op) -> Callable[[Control], Control]:
    """Register the control-flow planner of operators."""

    def registered(function: Control) -> Control:
        for operator in operators:
            CONTROLS[operator] = function
        return function

    return registered
