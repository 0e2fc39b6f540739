"""Simplification: passes that make a graph smaller with the same results, repeated until nothing changes."""

from __future__ import annotations

from collections.abc import Callable

from ..base.dataclass import dataclass
from ..ir.function import inline
from ..ir.graph import Graph, Node
from ..ir.shape_inference import kept_inferences
from ..plugin.discovery import below
from .fuse import __name__ as fuse
from .fuse import conv_neighbours
from .fuse.conv_batch_norm import FuseConvBatchNorm
from .fuse.matmul_bias import FuseMatMulBias
from .pattern.dead_code import RemoveDeadCode
from .pattern.rewrite_rules import ApplyRewriteRules, Rule
from .pattern.stage import PipelinePass
from .pattern.verify import check
from .simplify import pad_sum, redundant, reshape, transpose
from .simplify.common_subexpression import EliminateCommonSubexpressions
from .simplify.constant_folding import FoldConstants
from .simplify.identity import RemoveIdentities
from .simplify.transpose_sinking import SinkTransposes

CLEANUP_RULES = (*redundant.RULES, *reshape.RULES, *transpose.RULES, *pad_sum.RULES, *conv_neighbours.RULES)
"""Rules that remove or merge nodes, in the order in which they are tried."""
FUSION_RULES: tuple[Rule, ...] = tuple(rule for rules in below(fuse, "FUSION_RULES").all() for rule in rules)
"""Rules that fuse subgraphs into the operators that exporters decompose; each module of `fuse` may declare some."""
MAX_ROUNDS = 20
"""Maximum number of rounds; each round but the last changes something."""


def _fix_weights(graph: Graph) -> bool:
    """Remove initializers from the inputs: before IR 4 they had to be inputs too; as in onnxruntime, they are
    constants."""
    old = (graph.carried or {}).get("ir_version", 4) < 4
    fed = [value for value in graph.inputs if not old or value.name not in graph.weights]
    changed = len(fed) < len(graph.inputs)
    graph.inputs = fed
    return changed


@dataclass(frozen=True)
class Simplify:
    """Fold constants, merge and remove nodes.

    Attributes:
        max_fold: bytes that a folded constant may have beyond its inputs.
        skip: names of `PASSES` to leave out.
        opset: of ai.onnx, the last one whose operators may be brought in; None for any.
        told: is given a line for each pass that changed something.
        deferred: whether large constants that are folded are computed again whenever they are read, rather than held.
        unfolded: whether a node with constant inputs is not folded.
    """

    max_fold: int = 1 << 20
    skip: frozenset[str] = frozenset()
    opset: int | None = None
    told: Callable[[str], object] = lambda line: None
    deferred: bool = False
    unfolded: Callable[[Node], bool] = lambda node: False

    def run(self, graph: Graph) -> bool:
        """Return whether anything changed. The graph is verified before, and after every pass."""
        with kept_inferences():
            return self._run(graph)

    def _run(self, graph: Graph) -> bool:
        check(graph)
        changed = _fix_weights(graph)
        todo = {name: make(self) for name, make in STEPS if name not in self.skip}
        idle: set[str] = set()
        for _ in range(MAX_ROUNDS):
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


STEPS: tuple[tuple[str, Callable[[Simplify], Callable[[Graph], bool]]], ...] = (
    ("inline", lambda options: inline),
    ("fold", lambda options: FoldConstants(options.max_fold, options.deferred, options.unfolded).run),
    ("identities", lambda options: RemoveIdentities().run),
    ("common", lambda options: EliminateCommonSubexpressions().run),
    ("norm", lambda options: FuseConvBatchNorm().run),
    ("bias", lambda options: FuseMatMulBias().run),
    ("tidy", lambda options: ApplyRewriteRules(CLEANUP_RULES, options.opset).run),
    ("patterns", lambda options: ApplyRewriteRules(FUSION_RULES, options.opset).run),
    ("transposes", lambda options: SinkTransposes().run),
    ("dead", lambda options: RemoveDeadCode().run),
)
"""The passes of a round in order, by their names in `Simplify.skip`."""
PASSES = tuple(name for name, _ in STEPS)

PIPELINE = (
    PipelinePass("simplify", lambda options: Simplify(options.max_fold, deferred=True), backends=("cpu",)),
    PipelinePass("simplify", lambda options: Simplify(options.max_fold), backends=("cuda",)),
)
