"""Across ranks: each has some rows of the vocabulary, of the embedding and of the head, which may be one weight (`AcrossRanks`).

A rank looks up the tokens whose rows it has and zeros for the others, which AllReduce adds up; it computes the logits of its own rows, which
AllGather puts together. Where the rows cannot be shared evenly, the last rank has fewer, and logits that nobody has are cut off again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from ..build import Builder
from ..copies import needed
from ..graph import Graph, Node, Value
from ..record import dataclass
from .cutting import Spans, cuttable

NAMES = ("embed.weight", "head.weight")


@dataclass(frozen=True)
class Rows:
    """The rows of a weight that one rank has.

    Attributes:
        count: of all ranks; each: of every rank but the last, which may have fewer.
    """

    count: int
    each: int
    rank: int
    size: int

    @property
    def start(self) -> int:
        """The first one."""
        return self.rank * self.each

    @property
    def stop(self) -> int:
        """Behind the last one."""
        return min(self.start + self.each, self.count)

    @property
    def spans(self) -> Spans:
        """Where they lie."""
        return ((self.start, self.stop),)


@dataclass
class Vocabulary:
    """What of a graph is shared by rows of the vocabulary.

    Attributes:
        weights: that are cut; lookups, products: nodes that take them.
        whole: weights that stay whole, and why.
    """

    weights: dict[str, Rows] = field(default_factory=dict)
    lookups: dict[Node, Rows] = field(default_factory=dict)
    products: dict[Node, Rows] = field(default_factory=dict)
    whole: dict[str, str] = field(default_factory=dict)


def vocabulary(graph: Graph, rank: int, size: int) -> Vocabulary:
    """What can be cut of an inferred graph."""
    found = Vocabulary()
    for name in NAMES:
        tensor = graph.weights.get(name)
        users = [node for node in graph.nodes if any(value.name == name for value in needed(node))]
        if tensor is None or not users:
            continue
        rows = Rows(tensor.shape[0], -(-tensor.shape[0] // size), rank, size)
        taken = [_taken(graph, node, graph.values[name]) for node in users]
        if (size - 1) * rows.each >= rows.count or not cuttable(tensor, 0, rows.spans):
            found.whole[name] = f"{rows.count} rows are too few for {size} ranks"
        elif any(item is None for item in taken):
            found.whole[name] = "it is more than an embedding and a head"
        else:
            found.weights[name] = rows
            for node, products in zip(users, taken, strict=True):
                if node.op.name == "Gather":
                    found.lookups[node] = rows
                found.products.update(dict.fromkeys(products or (), rows))
    return found


def _taken(graph: Graph, node: Node, weight: Value) -> list[Node] | None:
    """The products whose second input a node turns a weight into; None where it does something else than that, or to look rows up."""
    if node.op.domain or node.inputs[0] is not weight:
        return None
    result = node.outputs[0]
    if node.op.name == "Gather" and node.inputs[1] is not weight and not node.attributes.get("axis", 0) and result.dtype is not None:
        return []
    users = [user for user in graph.nodes if result in needed(user)]
    if node.op.name != "Transpose" or list(node.attributes.get("perm", ())) != [1, 0] or result in graph.outputs:
        return None
    plain = all(user.op.name == "MatMul" and user.inputs[1] is result and user.outputs[0].shape for user in users)
    return users if plain else None


def own_row(build: Builder, node: Node, rows: Rows) -> Value:
    """Let a lookup take a row of this rank for every token; which of them are the tokens' own. Tokens that are in no vocabulary stay an error."""
    table = np.full(rows.count, -1, np.int32)
    table[rows.start : rows.stop] = np.arange(rows.stop - rows.start)
    zero = build.constant(np.array(0, np.int32))
    found = build.add("Gather", [build.constant(table), node.inputs[1]])
    node.inputs[1] = build.add("Max", [found, zero])
    return build.add("GreaterOrEqual", [found, zero])


def added_up(build: Builder, part: Value, whole: Value, own: Value, group: str) -> None:
    """`whole` from the rows that each rank has found, by `own` those of its tokens."""
    assert part.dtype is not None
    zero = build.constant(np.zeros((), part.dtype.as_numpy()))
    known = build.add("Where", [build.add("Unsqueeze", [own, build.constant([-1])]), part, zero])
    build.add("AllReduce", [known], {"group": group}, domain="candle", outputs=[whole])


def gathered(build: Builder, part: Value, whole: Value, rows: Rows, group: str) -> None:
    """`whole` from each rank's part of its last axis."""
    assert whole.shape is not None
    rank, short = len(whole.shape), rows.each - (rows.stop - rows.start)
    if short:
        part = build.add("Pad", [part, build.constant([0] * (2 * rank - 1) + [short])])
    parts = build.add("AllGather", [part], {"group": group, "ranks": rows.size}, domain="candle")
    behind = build.add("Transpose", [parts], {"perm": [*range(1, rank), 0, rank]})
    last = rows.each * rows.size
    result: Sequence[Value] | int = [whole] if last == rows.count else 1
    one = build.add("Reshape", [behind, build.constant([0] * (rank - 1) + [last])], outputs=result)
    if last != rows.count:
        ends = [build.constant([item]) for item in (0, rows.count, -1)]
        build.add("Slice", [one, *ends], outputs=[whole])
