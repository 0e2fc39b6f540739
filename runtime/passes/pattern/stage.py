"""Pipeline stages: when a pass runs between the start of a session and planning, and on which backends.

A module below `runtime.passes` that declares ``PIPELINE``, a tuple of `PipelinePass`, is part of the pipelines:

    PIPELINE = (PipelinePass("lower", lambda options: LowerOperators(), backends=("cpu",)),)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...base.dataclass import dataclass
from ...base.memory_check import available
from ...ir.graph import Graph

STAGES = ("prepare", "unfuse", "integers", "lower", "precision", "linear", "simplify", "regions", "layout")
"""Stages in the order in which they run. ``prepare`` runs in every session, the others where a graph is simplified."""
BACKENDS = ("cpu", "cuda")
MAX_FOLD = 1 << 30
"""Bytes of a constant that is folded, unless an eighth of the free memory is less."""


class Pass(Protocol):
    """A transformation that keeps what a graph computes."""

    def run(self, graph: Graph) -> bool:
        """Transform the graph in place. Returns whether anything changed."""


@dataclass(frozen=True)
class PipelineOptions:
    """Settings that passes depend on besides the graph.

    Attributes:
        activations: dtype of the activations of products with weights, as of `SessionOptions`.
    """

    activations: str = "f32"

    @property
    def max_fold(self) -> int:
        """Bytes that a folded constant may have beyond its inputs."""
        return min(MAX_FOLD, (available() or MAX_FOLD) // 8)


@dataclass(frozen=True)
class PipelinePass:
    """One pass of the pipelines.

    Attributes:
        stage: one of `STAGES`; passes of one stage run in the order of their modules' names.
        make: makes the pass.
        backends: names of the backends whose pipeline has it.
    """

    stage: str
    make: Callable[[PipelineOptions], Pass]
    backends: tuple[str, ...] = BACKENDS
