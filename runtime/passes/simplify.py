"""Simplifying: the passes that make a graph smaller without changing what it computes, until none finds anything."""

from __future__ import annotations

from collections.abc import Callable

from ..functions import inline
from ..graph import Graph
from ..record import dataclass
from .common import ShareCommon
from .consistency import check
from .dead import DropDead
from .fold import FoldConstants
from .gemm import MergeBias
from .identity import DropIdentities
from .layout import CancelTransposes
from .merge_norm import MergeNorm
from .patterns import MEANINGS, TIDYING
from .recognise import Recognise

PASSES = ("inline", "fold", "identities", "common", "norm", "bias", "tidy", "patterns", "transposes", "dead")
ROUNDS = 20
"""Rounds after which it is enough; each one but the last has found something."""


def _fix_weights(graph: Graph) -> bool:
    """Before IR 4 every initializer had to be an input too; there, as onnxruntime does, weights are constants and not to be fed."""
    old = (graph.carried or {}).get("ir_version", 4) < 4
    fed = [value for value in graph.inputs if not old or value.name not in graph.weights]
    changed = len(fed) < len(graph.inputs)
    graph.inputs = fed
    return changed


@dataclass(frozen=True)
class Simplify:
    """Fold, merge and remove.

    Attributes:
        max_fold: bytes that a folded constant may have beyond its inputs.
        skip: names of `PASSES` to leave out.
        opset: of ai.onnx, the last one whose operators may be brought in; None for any.
        told: is given a line for each pass that changed something.
        deferred: whether large constants that are folded are computed again whenever they are read, rather than held.
    """

    max_fold: int = 1 << 20
    skip: frozenset[str] = frozenset()
    opset: int | None = None
    told: Callable[[str], object] = lambda line: None
    deferred: bool = False

    def run(self, graph: Graph) -> bool:
        """Whether anything changed. The graph is checked before, and after every pass."""
        passes: tuple[Callable[[Graph], bool], ...] = (
            inline, FoldConstants(self.max_fold, self.deferred).run, DropIdentities().run, ShareCommon().run, MergeNorm().run, MergeBias().run,
            Recognise(TIDYING, self.opset).run, Recognise(MEANINGS, self.opset).run, CancelTransposes().run, DropDead().run,
        )
        check(graph)
        changed = _fix_weights(graph)
        todo = {name: run for name, run in zip(PASSES, passes, strict=True) if name not in self.skip}
        idle: set[str] = set()
        for _ in range(ROUNDS):
            for name, run in todo.items():
                if name in idle:
                    continue
                before = len(graph.nodes)
                if run(graph):
                    check(graph)
                    changed = True
                    idle.clear()
                    self.told(f"{name}: {before} nodes to {len(graph.nodes)}")
                else:
                    idle.add(name)
        return changed
