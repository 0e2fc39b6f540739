"""Base of the CPU and CUDA programs: runs a region, with plans cached by what is fed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

from ..ir.graph import Graph
from ..plan.plan import BasePlan
from ..region.region import Region

MAX_PLANS = 32
"""Plans cached, for the most recent dtypes and shapes."""
W = TypeVar("W")


class PlanRunner(Protocol):
    """Runs one plan."""

    @property
    def plan(self) -> BasePlan[Any]:
        """The plan."""


R = TypeVar("R", bound=PlanRunner)


class RegionProgram(Generic[W, R]):
    """Runs a region; concurrent runs have separate memory."""

    def __init__(self, region: Region[W]) -> None:
        self.region = region
        self.inputs = region.inputs
        self._plans: OrderedDict[Hashable, R] = OrderedDict()
        self._lock = threading.Lock()

    def _used(self, key: Hashable, runner: R) -> R:
        """Mark a plan as most recently used; returns the cached one if another thread has made the same plan."""
        with self._lock:
            runner = self._plans.setdefault(key, runner)
            self._plans.move_to_end(key)
            while len(self._plans) > MAX_PLANS:
                self._plans.popitem(last=False)
            return runner

    @property
    def runners(self) -> list[R]:
        """The runners of all cached plans, the most recently used last."""
        return list(self._plans.values())

    @property
    def plans(self) -> list[Any]:
        """The plans that are cached."""
        return [runner.plan for runner in self.runners]


P = TypeVar("P")


class Subprograms(Generic[P]):
    """The programs of a plan's subgraphs, each made when it first runs."""

    def __init__(self) -> None:
        self._made: dict[int, P] = {}

    def of(self, graph: Graph, make: Callable[[], P]) -> P:
        """The program of a subgraph."""
        found = self._made.get(id(graph))
        return self._made.setdefault(id(graph), make()) if found is None else found

    @property
    def made(self) -> list[P]:
        """The plans that have run."""
        return list(self._made.values())
