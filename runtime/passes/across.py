"""Across ranks: the part of a language model that one of several ranks computes (Shoeybi et al. 2019, arXiv:1909.08053).

Matrices that give queries, keys, values, gates and what is gated are cut between their rows, so that each rank has some heads and some hidden
units; those that take attention and hidden units back are cut between their columns, and AllReduce adds up what they give. What lies between is
followed node by node. A layer's attention or feed-forward network that cannot be followed or cut stays whole on every rank. The embedding and
the head are cut between rows of the vocabulary.
"""

from __future__ import annotations

import re
from dataclasses import field

from ..build import Builder
from ..errors import UnsupportedError, UsageError
from ..graph import Graph, Node, Value
from ..infer import infer
from ..record import dataclass
from .across_rules import RULES, Refused, Tracing
from .across_vocabulary import Vocabulary, added_up, gathered, own_row, vocabulary
from .cutting import cut, cuttable
from .rewrite import drop_unused_weights

ROLE = re.compile(r"^(?P<layer>.*layers\.\d+\.(?:attn|mlp)(?:\.experts)?)\.(?P<part>q|k|v|o|qkv|gate|up|down|both)\.(?:weight|bias)$")
"""Our names of the weights of attention and feed-forward networks."""
LAST = ("o", "down")
"""Matrices whose results are added up."""


@dataclass
class AcrossRanks:
    """Leaves a graph what one rank computes.

    Attributes:
        group: what AllReduce calls the ranks.
        whole: networks (``layers.0.attn``) and weights of the vocabulary that stay whole, and why.
    """

    rank: int
    size: int
    group: str
    whole: dict[str, str] = field(default_factory=dict)

    def run(self, graph: Graph) -> bool:
        """Whether anything is cut; UnsupportedError where nothing can be."""
        if not 0 <= self.rank < self.size:
            raise UsageError("E-RANK-NUMBER", None, f"rank {self.rank} of {self.size} does not exist")
        if self.size == 1:
            return False
        infer(graph)
        while True:
            tracing = Tracing(graph, self.rank, self.size, ROLE, frozenset(self.whole), LAST)
            try:
                _trace(tracing)
                break
            except Refused as refused:
                self.whole[refused.network] = refused.why
        if not tracing.cuts:
            why = next(iter(self.whole.values()), "no weight has the name of one that is known")
            raise UnsupportedError("E-RANK-SPLIT", None, f"nothing of the model can be cut for {self.size} ranks: {why}")
        words = vocabulary(graph, self.rank, self.size)
        self.whole |= words.whole
        _change(graph, tracing, words, self.group)
        return True


def _trace(tracing: Tracing) -> None:
    for node in tracing.graph.nodes:
        RULES.get((node.op.domain, node.op.name), Tracing.refuse)(tracing, node)
    for value in tracing.graph.outputs:
        if value in tracing.state and not value.name.startswith("present"):
            raise Refused(tracing.state[value].network, f"the output {value.name} would be a part")
    for name, (axis, spans) in tracing.cuts.items():
        if not cuttable(tracing.graph.weights[name], axis, spans):
            raise Refused(tracing.networks[name], f"{name} cannot be cut there: its blocks would be")


def _change(graph: Graph, tracing: Tracing, words: Vocabulary, group: str) -> None:
    for name, (axis, spans) in (tracing.cuts | {name: (0, rows.spans) for name, rows in words.weights.items()}).items():
        graph.weights[name] = cut(graph.weights[name], axis, spans)
        graph.values[name].shape = graph.weights[name].shape
    for value, shape in tracing.shapes.items():
        value.shape = shape
    before, graph.nodes = graph.nodes, []
    build = Builder(graph, stem="ranks")
    for node in before:
        attributes, constants, slices = tracing.changes.get(node, ({}, {}, {}))
        node.attributes |= attributes
        for place, numbers in constants.items():
            node.inputs[place] = build.constant(numbers)
        for place, (axis, start, stop) in slices.items():
            ends = (build.constant([item]) for item in (start, stop, axis))
            node.inputs[place] = build.add("Slice", [node.inputs[place], *ends])
        own = own_row(build, node, words.lookups[node]) if node in words.lookups else None
        build.keep(node)
        if node in tracing.sums:
            part, whole = _parted(build, node)
            build.add("AllReduce", [part], {"group": group}, domain="candle", outputs=[whole])
        elif own is not None:
            added_up(build, *_parted(build, node), own, group)
        elif node in words.products:
            gathered(build, *_parted(build, node), words.products[node], group)
    for value in (value for node in graph.nodes for value in node.outputs):
        value.shape = None
    drop_unused_weights(graph)


def _parted(build: Builder, node: Node) -> tuple[Value, Value]:
    """Another value for the output of a node, and the output itself, which other nodes are to give."""
    (whole,) = node.outputs
    part = Value(build.name("part"), whole.dtype, whole.shape)
    node.outputs = [part]
    build.graph.values[part.name] = part
    part.producer = node
    return part, whole
