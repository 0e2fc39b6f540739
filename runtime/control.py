"""Control flow in plans: operators with subgraphs whose nodes become part of the plan around them.

    @control(if_)
    def plan_if(planner: Planner, task: Task, tasks: deque[Task]) -> bool: ...

A control puts what it can into the plan, or in front of the tasks that are left, and says whether it did; otherwise `compute` runs the
subgraphs, each as a program of its own.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .copies import copied_graph
from .errors import Error
from .graph import Graph

if TYPE_CHECKING:
    from .op import Op
    from .planner import Planner, Task

Control = Callable[["Planner", "Task", "deque[Task]"], bool]

CONTROLS: dict[Op, Control] = {}
"""What plans an operator's subgraphs."""


class Unplanned(Exception):
    """A subgraph cannot be part of the plan around it."""


def control(*operators: Op) -> Callable[[Control], Control]:
    """Register what plans the subgraphs of operators."""

    def registered(function: Control) -> Control:
        for operator in operators:
            CONTROLS[operator] = function
        return function

    return registered


class Attempt:
    """Planning that may turn out to be impossible, with copies of subgraphs of its own; `undone` takes all of it back."""

    failures = (Unplanned, Error)
    """What planning raises where it is impossible; errors of the model among them, since a branch that is not taken may be wrong."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.lengths = len(planner.chains), len(planner.scratch)
        self.homes, self.constants = set(planner.homes), set(planner.constants)
        self.uses: Counter[Any] = Counter(planner.uses)
        self.values = dict(planner.values)
        self.work = planner.work, planner.hardest, planner.open_loops

    def copy(self, original: Graph) -> Graph:
        """A copy of a subgraph of the model."""
        return copied_graph(original, self.planner.values)

    def undone(self) -> None:
        """The plan as it was before."""
        planner, (chains, scratch) = self.planner, self.lengths
        del planner.chains[chains:], planner.nodes[chains:], planner.scratch[scratch:]
        for held, before in ((planner.homes, self.homes), (planner.constants, self.constants)):
            for value in held.keys() - before:
                del held[value]
        planner.uses = self.uses
        planner.values = self.values
        planner.work, planner.hardest, planner.open_loops = self.work
