"""Planning attempts that can be rolled back when planning a subgraph fails."""

from __future__ import annotations

import itertools
from collections import ChainMap

from ..base.errors import Error
from ..ir.clone import copied_graph
from ..ir.graph import Graph, Value
from .control_flow import Unplanned
from .planner import Planner


class Attempt:
    """Planning that may turn out to be impossible, with copies of subgraphs of its own; `undone` takes all of it back.

    What a planner collects only grows, so that lengths say how it was before: an attempt costs the same in a long plan
    and in a short one.
    """

    failures = (Unplanned, Error)
    """Errors of planning that is impossible; errors of the model are among them, since a branch that is not taken may
    be wrong."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.lengths = len(planner.steps), len(planner.scratch), len(planner.used), len(planner.read)
        self.replaced = len(planner.replaced)
        self.known = [(held, len(held)) for held in (planner.locations, planner.constants)]
        self.work = planner.work, planner.hardest, planner.open_loops

    def copy(self, original: Graph) -> Graph:
        """A copy of a subgraph of the model."""
        planner, made = self.planner, dict[Value, Value]()
        graph = copied_graph(original, ChainMap(made, planner.values))
        planner.replaced += [(value, planner.values.get(value)) for value in made]
        planner.values.update(made)
        return graph

    def undone(self) -> None:
        """The plan as it was before."""
        planner, (steps, scratch, used, read) = self.planner, self.lengths
        del planner.steps[steps:], planner.nodes[steps:], planner.scratch[scratch:]
        for held, length in self.known:
            for value in list(itertools.islice(reversed(held), len(held) - length)):
                del held[value]
        while len(planner.replaced) > self.replaced:
            value, before = planner.replaced.pop()
            if before is None:
                del planner.values[value]
            else:
                planner.values[value] = before
        planner.uses.subtract(planner.used[used:])
        planner.reads.subtract(planner.read[read:])
        del planner.used[used:], planner.read[read:]
        planner.work, planner.hardest, planner.open_loops = self.work
