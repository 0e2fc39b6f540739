"""Tensor parallelism: the shard of a language model that one of several ranks computes (Shoeybi et al. 2019,
arXiv:1909.08053).

Projections to queries, keys, values, gates and hidden units are column-parallel, so that each rank has some heads and
hidden units; output projections are row-parallel, and AllReduce adds their results. The nodes between are followed one
by one. An attention or feed-forward network that cannot be followed or sharded is replicated on every rank. The
embedding and the head are sharded by rows of the vocabulary.
"""

from __future__ import annotations

import re
from dataclasses import field

from ...base.dataclass import dataclass
from ...base.errors import UnsupportedError, UsageError
from ...base.units import counted
from ...ir.builder import Builder
from ...ir.domain import CANDLE
from ...ir.graph import Graph, Node, Value
from ...ir.shape_inference import infer
from ..pattern.replace_nodes import drop_unused_weights
from .partition_rules import RULES, NotShardable, ShardingTrace
from .vocabulary_parallel import Vocabulary, add_all_gather, add_all_reduce, add_shard_lookup, vocabulary
from .weight_slice import can_slice, slice_weight

ROLE = re.compile(
    r"^(?P<layer>.*layers\.\d+\.(?:attn|mlp)(?:\.experts)?)\.(?P<part>q|k|v|o|qkv|gate|up|down|both)\.(?:weight|bias)$"
)
"""Names of the weights of attention and feed-forward networks."""
LAST = ("o", "down")
"""Row-parallel matrices, whose results are summed."""


@dataclass
class ShardAcrossRanks:
    """Reduce a graph to the shard that one rank computes.

    Attributes:
        group: what AllReduce calls the ranks.
        whole: networks (``layers.0.attn``) and weights of the vocabulary that stay whole, and why.
    """

    rank: int
    size: int
    group: str
    whole: dict[str, str] = field(default_factory=dict)

    def run(self, graph: Graph) -> bool:
        """Return whether anything is sharded; raises UnsupportedError if nothing can be."""
        if not 0 <= self.rank < self.size:
            raise UsageError("E-RANK-NUMBER", None, f"rank {self.rank} of {self.size} does not exist")
        if self.size == 1:
            return False
        infer(graph)
        while True:
            tracing = ShardingTrace(graph, self.rank, self.size, ROLE, frozenset(self.whole), LAST)
            try:
                _trace(tracing)
                break
            except NotShardable as refused:
                self.whole[refused.network] = refused.why
        if not tracing.cuts:
            why = next(iter(self.whole.values()), "no weight has a known name")
            raise UnsupportedError(
                "E-RANK-SPLIT", None, f"the model cannot be sharded over {counted(self.size, 'rank')}: {why}"
            )
        words = vocabulary(graph, self.rank, self.size)
        self.whole |= words.whole
        _change(graph, tracing, words, self.group)
        return True


def _trace(tracing: ShardingTrace) -> None:
    for node in tracing.graph.nodes:
        RULES.get((node.op.domain, node.op.name), ShardingTrace.check_replicated)(tracing, node)
    for value in tracing.graph.outputs:
        if value in tracing.state and not value.name.startswith("present"):
            raise NotShardable(tracing.state[value].network, f"the output {value.name} would be a shard")
    for name, (axis, spans) in tracing.cuts.items():
        if not can_slice(tracing.graph.weights[name], axis, spans):
            raise NotShardable(tracing.networks[name], f"{name} cannot be sharded inside its blocks")


def _change(graph: Graph, tracing: ShardingTrace, words: Vocabulary, group: str) -> None:
    for name, (axis, spans) in (tracing.cuts | {name: (0, rows.spans) for name, rows in words.weights.items()}).items():
        graph.weights[name] = slice_weight(graph.weights[name], axis, spans)
        graph.values[name].shape = graph.weights[name].shape
    for value, shape in tracing.shapes.items():
        value.shape = shape
    before, graph.nodes = graph.nodes, []
    build = Builder(graph, stem="ranks")
    for node in before:
        attributes, constants, slices = tracing.changes.get(node, ({}, {}, {}))
        node.attributes |= attributes
        for index, numbers in constants.items():
            node.inputs[index] = build.constant(numbers)
        for index, (axis, start, stop) in slices.items():
            ends = (build.constant([item]) for item in (start, stop, axis))
            node.inputs[index] = build.add("Slice", [node.inputs[index], *ends])
        own = add_shard_lookup(build, node, words.lookups[node]) if node in words.lookups else None
        build.keep(node)
        if node in tracing.sums:
            part, whole = _parted(build, node)
            build.add("AllReduce", [part], {"group": group}, domain=CANDLE, outputs=[whole])
        elif own is not None:
            add_all_reduce(build, *_parted(build, node), own, group)
        elif node in words.products:
            add_all_gather(build, *_parted(build, node), words.products[node], group)
    for value in (value for node in graph.nodes for value in node.outputs):
        value.shape = None
    drop_unused_weights(graph)


def _parted(build: Builder, node: Node) -> tuple[Value, Value]:
    """A new value for the output of a node, and the original output, which other nodes will compute."""
    (whole,) = node.outputs
    part = Value(build.name("part"), whole.dtype, whole.shape)
    node.outputs = [part]
    build.graph.values[part.name] = part
    part.producer = node
    return part, whole
