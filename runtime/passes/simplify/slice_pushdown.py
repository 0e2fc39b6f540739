"""Slice pushdown: row-wise operators compute only the rows that a later Slice keeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from ...ir.builder import Builder
from ...ir.clone import needed
from ...ir.domain import CANDLE
from ...ir.graph import Graph, Node, Value
from ...ir.registry import onnx
from ...ir.shape_inference import infer
from ..pattern.dead_code import RemoveDeadCode
from ..pattern.replace_nodes import constant, substitute

Axes = dict[Value, int]
"""Values of which some rows are needed, and the axis along which these are counted."""
SINGLE = ("Cast", "Gelu", "Identity")
"""Unary elementwise operators, in addition to those with a scalar function."""


class PushDownSlices:
    """Move a constant Slice along one axis, not the last, before norms, matrix products and elementwise operators.

    A value that is read in full elsewhere stays, and its slice is computed too. In language models whose last token
    is needed, the last layer computes that token alone, except for the attention's keys and values.
    """

    def run(self, graph: Graph) -> bool:
        """Return whether anything moved. Removes dead nodes."""
        RemoveDeadCode().run(graph)
        infer(graph)
        changed = False
        for node in [node for node in graph.nodes if node.op is onnx.Slice]:
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
    whole = last.inputs[0]
    assert whole is not None
    rows: dict[Node, Axes] = {last: {whole: axis}}
    given = set(graph.outputs)
    for node in reversed(graph.nodes):
        value = node.outputs[0]
        along = {rows[user].get(value) if user in rows else None for user in users[value]}
        if len(node.outputs) > 1 or value in given or len(along) != 1 or node in rows:
            continue
        found = _rows(graph, node, along.pop())
        if found:
            rows[node] = found
    if whole.producer not in rows:
        return False
    _rewritten(graph, last, rows)
    return True


def _rewritten(graph: Graph, last: Node, rows: dict[Node, Axes]) -> None:
    """The graph with the Slice before some nodes, whose row operands are given."""
    (kept,), (whole, start, stop, _, *steps) = last.outputs, last.inputs
    assert whole is not None
    assert kept.shape is not None
    dim = kept.shape[rows.pop(last)[whole]]
    parts: dict[Value, Value] = {}
    for operands in list(rows.values()):
        for value, axis in operands.items():
            if value.producer in rows and value.shape is not None:
                parts[value] = value
                value.shape = (*value.shape[:axis], dim, *value.shape[axis + 1 :])
    made: list[Node] = []
    build = Builder(graph, made, last.name or "Slice")
    for node in (node for node in graph.nodes if node is not last):
        for value, axis in rows.get(node, {}).items():
            if value not in parts:
                parts[value] = build.add("Slice", [value, start, stop, build.constant([axis]), *steps])
            node.inputs = [parts[value] if each is value else each for each in node.inputs]
        made.append(node)
    graph.nodes = made
    whole.shape = kept.shape
    substitute(graph, {kept: whole})


def _axis(graph: Graph, node: Node) -> int | None:
    """The axis that a constant Slice shortens; None for several axes, the last, or an unknown one."""
    held = [constant(graph, value) for value in node.inputs[1:]]
    x = node.inputs[0]
    if x is None or x.shape is None or len(held) < 3 or None in held or held[2] is None or held[2].count != 1:
        return None
    axis = int(held[2].numpy().reshape(-1)[0]) % len(x.shape)
    return axis if axis < len(x.shape) - 1 and node.outputs[0].shape is not None else None


def _rows(graph: Graph, node: Node, axis: int | None) -> Axes:
    """The operands of which a node needs the same rows as of its result; empty if it needs others."""
    x, out, name = node.inputs[0] if node.inputs else None, node.outputs[0], node.op.name
    if (
        axis is None
        or x is None
        or x.shape is None
        or out.shape is None
        or axis >= len(out.shape) - 1
        or node.subgraphs
    ):
        return {}
    if node.op.domain == CANDLE and name == "Linear":
        return {x: axis}
    if node.op.domain:
        return {}
    if name in RULES:
        found = RULES[name](graph, node, axis)
        return found if all(node.inputs.count(value) == 1 for value in found) else {}
    return _by_element(node, axis) if node.op.scalar is not None or name in SINGLE else {}


def _by_element(node: Node, axis: int) -> Axes:
    """Operands that have the axis and do not broadcast along it."""
    found: Axes = {}
    rank, count = _shape(node.outputs[0])
    for value in node.inputs:
        if value is None or value.shape is None:
            return {}
        place = axis + len(value.shape) - rank
        if place < 0 or (value.shape[place] == 1 and count[axis] != 1):
            continue
        if value.shape[place] is None or value.shape[place] != count[axis]:
            return {}
        found[value] = place
    return found


def _normed(graph: Graph, node: Node, axis: int) -> Axes:
    """Norms over the last axis."""
    x = node.inputs[0]
    return {x: axis} if x is not None and node.attributes.get("axis", -1) in (-1, _shape(x)[0] - 1) else {}


def _multiplied(graph: Graph, node: Node, axis: int) -> Axes:
    """Products with a single matrix."""
    x, right = node.inputs
    assert x is not None
    return (
        {x: axis} if right is not None and _shape(right)[0] == 2 and _shape(x)[0] == _shape(node.outputs[0])[0] else {}
    )


def _transposed(graph: Graph, node: Node, axis: int) -> Axes:
    """Transpose that keeps the last axis."""
    x, order = node.inputs[0], node.attributes.get("perm")
    assert x is not None
    return {x: int(order[axis])} if order is not None and int(order[axis]) < _shape(x)[0] - 1 else {}


def _reshaped(graph: Graph, node: Node, axis: int) -> Axes:
    """Reshape of the axes after the rows, without a constant number of rows."""
    x, wanted = node.inputs[0], constant(graph, node.inputs[1])
    assert x is not None
    (_, before), (_, after) = _shape(x), _shape(node.outputs[0])
    if (
        wanted is None
        or node.attributes.get("allowzero")
        or len(before) <= axis + 1
        or before[: axis + 1] != after[: axis + 1]
    ):
        return {}
    return {x: axis} if None not in before[: axis + 1] and int(wanted.numpy()[axis]) in (0, -1) else {}


def _rotated(graph: Graph, node: Node, axis: int) -> Axes:
    """RotaryEmbedding of [batch, length, ..], with one table row per row."""
    x, *tables = node.inputs
    assert x is not None
    fits = _shape(x)[0] == 3 and axis == 1 and len(tables) == 2
    return (
        {value: axis for value in (x, *tables) if value is not None}
        if fits and all(_like(x, table, axis) for table in tables)
        else {}
    )


def _attended(graph: Graph, node: Node, axis: int) -> Axes:
    """Queries [batch, heads, length, size] with one mask row each, if positions have no other effect."""
    queries, _, _, mask, *others = [*node.inputs, None]
    assert queries is not None
    if (
        _shape(queries)[0] != 4
        or axis != 2
        or any(others)
        or node.attributes.get("is_causal")
        or mask is None
        or _shape(mask)[0] != 4
    ):
        return {}
    if _shape(mask)[1][2] == 1:
        return {queries: axis}
    return {queries: axis, mask: axis} if _like(queries, mask, axis) else {}


def _like(one: Value, other: Value | None, axis: int) -> bool:
    """Whether two values are known to have the same number of rows."""
    if other is None or _shape(other)[0] <= axis:
        return False
    count = _shape(other)[1][axis]
    return count is not None and count == _shape(one)[1][axis]


def _shape(value: Value) -> tuple[int, tuple[int | str | None, ...]]:
    """The shape; empty if it is unknown."""
    dims = value.shape or ()
    return len(dims), dims


RULES: dict[str, Callable[[Graph, Node, int], Axes]] = {
    "Attention": _attended,
    "LayerNormalization": _normed,
    "MatMul": _multiplied,
    "Reshape": _reshaped,
    "RMSNormalization": _normed,
    "RotaryEmbedding": _rotated,
    "Transpose": _transposed,
}
