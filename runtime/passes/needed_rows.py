"""Needed rows: what computes rows one by one computes those alone that a Slice behind it keeps."""

from __future__ import annotations

from collections import defaultdict

from ..build import Builder
from ..copies import needed
from ..graph import Graph, Node, Value
from ..infer import infer
from .dead import DropDead
from .rewrite import constant, substitute

NORMS = ("RMSNormalization", "LayerNormalization")
SINGLE = ("Cast", "Gelu", "Identity")
"""Operators of one input that work element by element, beside those that are made of a scalar function."""


class NeededRows:
    """A Slice along one axis, known and not the last one, moves in front of norms, products with matrices and operators by element.

    A value that is read in whole elsewhere stays, and a copy of its rows is taken. Of language models whose last token is asked for, the last
    layer computes its products for that token alone, but for those that make the attention's queries, keys and values.
    """

    def run(self, graph: Graph) -> bool:
        """Whether any did. Drops dead nodes."""
        DropDead().run(graph)
        infer(graph)
        changed = False
        for node in [node for node in graph.nodes if not node.op.domain and node.op.name == "Slice"]:
            changed |= _moved(graph, node)
        return changed


def _moved(graph: Graph, last: Node) -> bool:
    axis = _axis(graph, last)
    if axis is None or last.outputs[0] in graph.outputs:
        return False
    users: dict[Value, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        for value in needed(node):
            users[value].append(node)
    rows: dict[Node, list[Value]] = {}
    given = set(graph.outputs)
    for node in reversed(graph.nodes):
        value = node.outputs[0]
        if len(node.outputs) > 1 or value in given or not users[value]:
            continue
        if all(value in rows.get(user, last.inputs[:1] if user is last else []) for user in users[value]):
            found = _rows(node, axis)
            if found:
                rows[node] = found
    if last.inputs[0] is None or last.inputs[0].producer not in rows:
        return False
    _rewritten(graph, last, axis, rows)
    return True


def _rewritten(graph: Graph, last: Node, axis: int, rows: dict[Node, list[Value]]) -> None:
    """The graph with the Slice in front of some nodes, whose operands with rows are given."""
    (kept,), (whole, *bounds) = last.outputs, last.inputs
    assert whole is not None
    assert kept.shape is not None
    made: list[Node] = []
    parts = {node.outputs[0]: node.outputs[0] for node in rows}
    build = Builder(graph, made, last.name or "Slice")
    for node in (node for node in graph.nodes if node is not last):
        for index, value in enumerate(node.inputs if node in rows else []):
            if value in rows[node]:
                if value not in parts:
                    parts[value] = build.add("Slice", [value, *bounds])
                node.inputs[index] = parts[value]
        made.append(node)
    graph.nodes = made
    for node in rows:
        (value,) = node.outputs
        assert value.shape is not None
        value.shape = (*value.shape[:axis], kept.shape[axis], *value.shape[axis + 1 :])
    substitute(graph, {kept: whole})


def _axis(graph: Graph, node: Node) -> int | None:
    """The axis that a Slice with known bounds shortens; None for several, the last one, or one that is not known."""
    held = [constant(graph, value) for value in node.inputs[1:]]
    x = node.inputs[0]
    if x is None or x.shape is None or len(held) < 3 or None in held or held[2] is None or held[2].count != 1:
        return None
    axis = int(held[2].numpy().reshape(-1)[0]) % len(x.shape)
    return axis if axis < len(x.shape) - 1 and node.outputs[0].shape is not None else None


def _rows(node: Node, axis: int) -> list[Value]:
    """The operands of which a node needs the same rows that are needed of its result; none where it needs others."""
    x, out, name = node.inputs[0] if node.inputs else None, node.outputs[0], node.op.name
    if x is None or x.shape is None or out.shape is None or axis >= len(out.shape) - 1 or node.subgraphs:
        return []
    if node.op.domain == "candle" and name == "Linear":
        return [x]
    if node.op.domain:
        return []
    if name in NORMS:
        return [x] if node.attributes.get("axis", -1) in (-1, len(x.shape) - 1) else []
    if name == "MatMul":
        right = node.inputs[1]
        return [x] if right is not None and right.shape is not None and len(right.shape) == 2 and len(x.shape) == len(out.shape) else []
    if node.op.scalar is None and name not in SINGLE:
        return []
    found = []
    for value in node.inputs:
        if value is None or value.shape is None:
            return []
        place = axis + len(value.shape) - len(out.shape)
        if place < 0 or (value.shape[place] == 1 and out.shape[axis] != 1):
            continue
        if value.shape[place] is None or value.shape[place] != out.shape[axis]:
            return []
        found.append(value)
    return found
