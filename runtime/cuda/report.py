"""What of a graph runs where, and the copies that this costs."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import Any

from ..dtype import F32
from ..functions import inline
from ..graph import Graph, Value
from ..record import dataclass
from ..upgrade import upgrade
from .divided import Divided
from .kernel import Launch
from .place import kernels
from .plan import Control, Download, Fixed, HostStep, OnHost, Plan, Upload
from .planner import Planner
from .pool import Share, pool_of
from .program import Program, weights_of


@dataclass
class Placement:
    """Counts over all plans of a program.

    Attributes:
        device: nodes of each operator that run on the device.
        host: nodes that run on the CPU, by operator and reason.
        border: bytes that copies cost a run because of nodes on the CPU, to the device and from it; edges: those of inputs and outputs.
        weights, values: bytes of device memory.
        waiting: nodes whose shapes are known during a run only.
        launches: kernels of a run.
    """

    device: Counter[str] = field(default_factory=Counter)
    host: Counter[tuple[str, str]] = field(default_factory=Counter)
    border: list[int] = field(default_factory=lambda: [0, 0])
    edges: list[int] = field(default_factory=lambda: [0, 0])
    copies: int = 0
    weights: int = 0
    values: int = 0
    waiting: int = 0
    launches: int = 0

    def lines(self) -> list[str]:
        """Sentences for people."""
        found = [
            f"device: {sum(self.device.values())} nodes in {self.launches} launches · {self.weights:,} bytes of weights · {self.values:,} of values",
            f"copies: inputs {self.edges[0]:,} and outputs {self.edges[1]:,} bytes; {self.copies} at nodes on the CPU, {self.border[0]:,} bytes to "
            f"the device and {self.border[1]:,} from it",
        ]
        found += [f"on the CPU: {name} x{count}: {why}" for (name, why), count in sorted(self.host.items())]
        return found + ([f"{self.waiting} nodes are placed when a shape that depends on data is known"] if self.waiting else [])

    def to_json(self) -> dict[str, Any]:
        """The same for programs."""
        host = [{"op": name, "why": why, "nodes": count} for (name, why), count in sorted(self.host.items())]
        return {
            "device": dict(sorted(self.device.items())), "host": host, "launches": self.launches, "copies": self.copies,
            "copied": {"to_device": self.border[0], "to_host": self.border[1], "inputs": self.edges[0], "outputs": self.edges[1]},
            "device_bytes": {"weights": self.weights, "values": self.values}, "waiting": self.waiting,
        }


def placement_of(program: Program | Divided) -> Placement:
    """The placement of what a program has run."""
    made = Placement()
    made.host.update((node.op.name, "its layer is left to the CPU") for node in program.left)
    waiting: list[Program | Divided] = [program]
    while waiting:
        for runner in waiting.pop().runners:
            _count(runner.plan, made)
            waiting += [*runner.below, *([runner.plan.rest] if runner.plan.rest is not None else [])]
            made.waiting -= len(runner.plan.rest.nodes) if runner.plan.rest is not None and runner.plan.rest.runners else 0
    return made


def foreseen(graph: Graph, lengths: dict[str, int] | None = None) -> Placement:
    """The placement of a graph before it runs; symbolic dimensions that `lengths` does not name are 1. Needs no device."""
    upgrade(graph)
    if graph.functions:
        inline(graph)
    kernels()
    program = Program(graph.nodes, graph.inputs, graph.outputs, weights_of(graph), Share(pool_of(0)), {})
    plan = Planner(program, [_described(value, graph, lengths or {}) for value in graph.inputs], frozenset()).made()
    made = Placement()
    _count(plan, made)
    return made


def _described(value: Value, graph: Graph, lengths: dict[str, int]) -> OnHost | Fixed:
    if value.name in graph.weights:
        return Fixed(graph.weights[value.name])
    if value.container:
        return OnHost(value.dtype, None)
    shape = None if value.shape is None else tuple(dim if isinstance(dim, int) else lengths.get(str(dim), 1) for dim in value.shape)
    return OnHost(value.dtype or F32, shape)


def _count(plan: Plan, made: Placement) -> None:
    made.values += plan.arena
    made.weights += sum(array.nbytes for array in plan.weights.values())
    made.waiting += len(plan.rest.nodes) if plan.rest is not None else 0
    fed = {value for value in plan.fed if isinstance(value, Value)}
    seen: set[int] = set()
    for step, node in zip(plan.steps, plan.nodes, strict=True):
        if isinstance(step, HostStep):
            made.host[step.node.op.name, step.why] += 1
        elif isinstance(step, Control):
            made.device[step.node.op.name] += 1
        elif isinstance(step, Launch):
            made.launches += 1
            if node is not None and id(node) not in seen:
                seen.add(id(node))
                made.device[node.op.name] += 1
        elif isinstance(step, Upload):
            if step.value in fed:
                made.edges[0] += step.buffer.nbytes
            else:
                made.border[0] += step.buffer.nbytes
                made.copies += 1
        elif isinstance(step, Download):
            made.border[1] += step.buffer.nbytes
            made.copies += 1
    for home in plan.outputs:
        if not isinstance(home, Value):
            made.edges[1] += home.nbytes
