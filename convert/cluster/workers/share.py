"""What each worker of a cluster gets of a work, which ``--dry-run`` shows before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.units import counted, human_size
from ....runtime.ir.graph import Graph
from ....runtime.passes.weights.collect import collect_weights
from .opening import Opening


@dataclass(frozen=True)
class Share:
    """A work as its workers share it.

    Attributes:
        count: units of it; unit: what one is called.
        nbytes: of weights or files; held: whether every worker holds that many, otherwise all of them read them
            together.
    """

    count: int
    nbytes: int
    held: bool
    unit: str = "piece"

    def line(self, workers: int) -> str:
        """The share of each of `workers`."""
        if self.held:
            return f"{counted(self.count, self.unit)}, {human_size(self.nbytes)} of weights held per worker"
        read = human_size(self.nbytes / max(1, workers))
        return f"{counted(self.count, self.unit)}, {read} read per worker"


def weight_bytes(graph: Graph) -> int:
    """Bytes of all weights of a model as they are stored."""
    return sum(tensor.nbytes for part in graph.parts.values() or (graph,) for tensor in collect_weights(part).values())


def opened_bytes(work: Any) -> int:
    """Bytes of the weights of all models that the description of a work names."""
    if isinstance(work, Opening):
        return weight_bytes(work.graph(parts=True))
    if isinstance(work, Mapping):
        return sum(map(opened_bytes, work.values()))
    if isinstance(work, tuple):
        return sum(map(opened_bytes, work))
    if is_dataclass(work):
        return sum(opened_bytes(getattr(work, each.name)) for each in fields(work))
    return 0
