"""Placement report: which nodes run on the device and on the CPU, and the bytes of the copies between them."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import Any

from ...base.dataclass import dataclass
from ...ir.function import inline
from ...ir.graph import Graph, Value
from ...ir.opset_upgrade import upgrade
from ...region.region import Region
from ...tensor.dtype import F32
from ..kernel.kernel import Launch
from ..memory.host_weight import weights_of
from ..plan.kernel_api import load_kernels
from ..plan.plan import Control, Download, Fixed, HostStep, OnHost, Plan, Upload
from ..plan.planner import Planner
from .layer_offload import OffloadedProgram
from .program import Program


@dataclass
class Placement:
    """Counts over all plans of a program.

    Attributes:
        device: nodes of each operator that run on the device.
        host: nodes that run on the CPU, by operator and reason.
        border: bytes that copies cost a run because of nodes on the CPU, to the device and from it; edges: those of
            inputs and outputs.
        weights, values: bytes of device memory.
        pending: nodes whose shapes are known during a run only.
        launches: kernels of a run.
    """

    device: Counter[str] = field(default_factory=Counter)
    host: Counter[tuple[str, str]] = field(default_factory=Counter)
    border: list[int] = field(default_factory=lambda: [0, 0])
    edges: list[int] = field(default_factory=lambda: [0, 0])
    copies: int = 0
    weights: int = 0
    values: int = 0
    pending: int = 0
    launches: int = 0

    def lines(self) -> list[str]:
        """The report as text."""
        found = [
            f"device: {sum(self.device.values())} nodes in {self.launches} launches · "
            f"{self.weights:,} bytes of weights · {self.values:,} of values",
            f"copies: inputs {self.edges[0]:,} and outputs {self.edges[1]:,} bytes; {self.copies} at nodes on the CPU, "
            f"{self.border[0]:,} bytes to the device and {self.border[1]:,} from it",
        ]
        found += [f"on the CPU: {name} x{count}: {why}" for (name, why), count in sorted(self.host.items())]
        return found + (
            [f"{self.pending} nodes are placed once a data-dependent shape is known"] if self.pending else []
        )

    def to_json(self) -> dict[str, Any]:
        """The report as JSON data."""
        host = [{"op": name, "why": why, "nodes": count} for (name, why), count in sorted(self.host.items())]
        return {
            "device": dict(sorted(self.device.items())),
            "host": host,
            "launches": self.launches,
            "copies": self.copies,
            "copied": {
                "to_device": self.border[0],
                "to_host": self.border[1],
                "inputs": self.edges[0],
                "outputs": self.edges[1],
            },
            "device_bytes": {"weights": self.weights, "values": self.values},
            "pending": self.pending,
        }


def placement_of(program: Program | OffloadedProgram) -> Placement:
    """The placement of the plans that a program has run."""
    made = Placement()
    made.host.update((node.op.name, "its layer is left to the CPU") for node in program.left)
    pending: list[Program | OffloadedProgram] = [program]
    while pending:
        for runner in pending.pop().runners:
            _count(runner.plan, made)
            pending += [*runner.below, *([runner.rest] if runner.rest is not None else [])]
            made.pending -= len(runner.rest.region.nodes) if runner.rest is not None and runner.rest.runners else 0
    return made


def predict_placement(graph: Graph, lengths: dict[str, int] | None = None) -> Placement:
    """The placement of a graph before it runs; symbolic dimensions missing in `lengths` are 1. Needs no device."""
    upgrade(graph)
    if graph.functions:
        inline(graph)
    load_kernels()
    region = Region(graph.nodes, graph.inputs, graph.outputs, weights_of(graph), {})
    plan = Planner(region, [_described(value, graph, lengths or {}) for value in graph.inputs]).make_plan()
    made = Placement()
    _count(plan, made)
    return made


def _described(value: Value, graph: Graph, lengths: dict[str, int]) -> OnHost | Fixed:
    if value.name in graph.weights:
        return Fixed(graph.weights[value.name])
    if value.container:
        return OnHost(value.dtype, None)
    shape = (
        None
        if value.shape is None
        else tuple(dim if isinstance(dim, int) else lengths.get(str(dim), 1) for dim in value.shape)
    )
    return OnHost(value.dtype or F32, shape)


def _count(plan: Plan, made: Placement) -> None:
    made.values += plan.arena
    made.weights += sum(array.nbytes for array in plan.weights.values())
    made.pending += len(plan.rest.nodes) if plan.rest is not None else 0
    fed = {value for value in plan.inputs if isinstance(value, Value)}
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
    for location in plan.outputs:
        if not isinstance(location, Value):
            made.edges[1] += location.nbytes
