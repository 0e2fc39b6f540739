"""Vocabulary parallelism: each rank holds some rows of the embedding and of the head, which may be one weight
(`ShardAcrossRanks`).

A rank looks up the tokens in its rows and zeros for the others, which AllReduce adds up; it computes the logits of its
own rows, which AllGather concatenates. If the rows do not divide evenly, the last rank has fewer, and the padding
logits are sliced off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from ...base.dataclass import dataclass
from ...base.units import counted
from ...ir.builder import Builder
from ...ir.clone import needed
from ...ir.domain import CANDLE
from ...ir.graph import Graph, Node, Value
from ...ir.registry import onnx
from .weight_slice import Spans, can_slice

NAMES = ("embed.weight", "head.weight")


@dataclass(frozen=True)
class VocabularyShard:
    """The rows of a weight that one rank holds.

    Attributes:
        count: of all ranks; each: of every rank but the last, which may have fewer.
    """

    count: int
    each: int
    rank: int
    size: int

    @property
    def start(self) -> int:
        """First row."""
        return self.rank * self.each

    @property
    def stop(self) -> int:
        """End of the rows, exclusive."""
        return min(self.start + self.each, self.count)

    @property
    def spans(self) -> Spans:
        """The span of the rows, as a list."""
        return ((self.start, self.stop),)


@dataclass
class Vocabulary:
    """The vocabulary-parallel part of a graph.

    Attributes:
        weights: that are cut; lookups, products: nodes that take them.
        whole: weights that stay whole, and why.
    """

    weights: dict[str, VocabularyShard] = field(default_factory=dict)
    lookups: dict[Node, VocabularyShard] = field(default_factory=dict)
    products: dict[Node, VocabularyShard] = field(default_factory=dict)
    whole: dict[str, str] = field(default_factory=dict)


def vocabulary(graph: Graph, rank: int, size: int) -> Vocabulary:
    """Find the embedding and head weights of an inferred graph that can be sharded."""
    found = Vocabulary()
    for name in NAMES:
        tensor = graph.weights.get(name)
        users = [node for node in graph.nodes if any(value.name == name for value in needed(node))]
        if tensor is None or not users:
            continue
        rows = VocabularyShard(tensor.shape[0], -(-tensor.shape[0] // size), rank, size)
        taken = [_taken(graph, node, graph.values[name]) for node in users]
        if (size - 1) * rows.each >= rows.count or not can_slice(tensor, 0, rows.spans):
            found.whole[name] = f"{counted(rows.count, 'row', verb='is')} too few for {size} ranks"
        elif any(item is None for item in taken):
            found.whole[name] = "it is more than an embedding and a head"
        else:
            found.weights[name] = rows
            for node, products in zip(users, taken, strict=True):
                if node.op is onnx.Gather:
                    found.lookups[node] = rows
                found.products.update(dict.fromkeys(products or (), rows))
    return found


def _taken(graph: Graph, node: Node, weight: Value) -> list[Node] | None:
    """The products whose second input derives from a weight; None if the weight has any other use but lookups."""
    if node.op.domain or node.inputs[0] is not weight:
        return None
    result = node.outputs[0]
    if (
        node.op is onnx.Gather
        and node.inputs[1] is not weight
        and not node.attributes.get("axis", 0)
        and result.dtype is not None
    ):
        return []
    users = [user for user in graph.nodes if result in needed(user)]
    if node.op is not onnx.Transpose or list(node.attributes.get("perm", ())) != [1, 0] or result in graph.outputs:
        return None
    plain = all(user.op is onnx.MatMul and user.inputs[1] is result and user.outputs[0].shape for user in users)
    return users if plain else None


def add_shard_lookup(build: Builder, node: Node, rows: VocabularyShard) -> Value:
    """Map each token to a row of this rank, with a mask of the rank's own tokens. Tokens outside of the vocabulary stay
    an error."""
    table = np.full(rows.count, -1, np.int32)
    table[rows.start : rows.stop] = np.arange(rows.stop - rows.start)
    zero = build.constant(np.array(0, np.int32))
    found = build.add("Gather", [build.constant(table), node.inputs[1]])
    node.inputs[1] = build.add("Max", [found, zero])
    return build.add("GreaterOrEqual", [found, zero])


def add_all_reduce(build: Builder, part: Value, whole: Value, own: Value, group: str) -> None:
    """Compute `whole` as the sum of the rows that all ranks looked up; `own` masks those of this rank."""
    assert part.dtype is not None
    zero = build.constant(np.zeros((), part.dtype.as_numpy()))
    known = build.add("Where", [build.add("Unsqueeze", [own, build.constant([-1])]), part, zero])
    build.add("AllReduce", [known], {"group": group}, domain=CANDLE, outputs=[whole])


def add_all_gather(build: Builder, part: Value, whole: Value, rows: VocabularyShard, group: str) -> None:
    """Compute `whole` from each rank's shard of its last axis."""
    assert whole.shape is not None
    rank, short = len(whole.shape), rows.each - (rows.stop - rows.start)
    if short:
        part = build.add("Pad", [part, build.constant([0] * (2 * rank - 1) + [short])])
    parts = build.add("AllGather", [part], {"group": group, "ranks": rows.size}, domain=CANDLE)
    behind = build.add("Transpose", [parts], {"perm": [*range(1, rank), 0, rank]})
    last = rows.each * rows.size
    result: Sequence[Value] | int = [whole] if last == rows.count else 1
    one = build.add("Reshape", [behind, build.constant([0] * (rank - 1) + [last])], outputs=result)
    if last != rows.count:
        ends = [build.constant([item]) for item in (0, rows.count, -1)]
        build.add("Slice", [one, *ends], outputs=[whole])
