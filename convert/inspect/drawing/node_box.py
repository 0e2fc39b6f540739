"""Node boxes: the text in the box of a node, input or output, and its details in the side panel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....runtime.base.units import counted
from ....runtime.ir.graph import Graph, Node, Value
from ....runtime.tensor.stored_tensor import StoredTensor
from ..graph_summary import type_text
from .operator_category import category, input_names

TITLE, ROW, BORDER = 22, 14, 8
"""Heights of a title and of a row below it, and what is around the rows."""
TITLE_CHARACTER, ROW_CHARACTER = 8.0, 6.7
"""Widths of characters in titles and rows."""
NARROWEST, WIDEST = 56.0, 230.0
ROWS = 6
"""Rows of a box; the others are counted."""
SMALL = 4
"""Elements of a constant whose values are shown."""
FAR = 2**31 - 1
"""Integers from here on say "to the end"."""
TEXT = 2_000


def end_of(kind: str, value: Value) -> dict[str, Any]:
    """The box of an input or output of a graph."""
    width = _width(len(value.name) * TITLE_CHARACTER)
    return {"kind": kind, "label": value.name, "type": type_text(value), "w": width, "h": TITLE}


def box_of(graph: Graph, node: Node, inner: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """The box of a node; `inner` are its subgraphs: the attribute, and the number among the drawings."""
    formal = input_names(node.op.name, node.op.domain)
    rows, inputs = [], []
    for position, value in enumerate(node.inputs):
        name = formal[position] if position < len(formal) else ""
        tensor = None if value is None else weight_of(graph, value.name)
        inputs.append(
            ["", "", name, None] if value is None else [value.name, type_text(value), name, tensor is not None]
        )
        if value is not None and tensor is not None:
            rows.append([name or value.name.rpartition(".")[2].rpartition("/")[2], _shown(tensor)])
    if len(rows) > ROWS:
        rows = [*rows[: ROWS - 1], [f"{len(rows) - ROWS + 1} more", ""]]
    label = node.op.name
    widths = [len(label) * TITLE_CHARACTER, *((len(name) + len(text) + 1) * ROW_CHARACTER for name, text in rows)]
    attributes = [[key, _text(value)] for key, value in node.attributes.items()]
    return {
        "kind": "node", "category": category(node.op.name, node.op.domain), "label": label, "domain": node.op.domain,
        "name": node.name, "rows": rows, "attributes": attributes, "inputs": inputs,
        "outputs": [[value.name, type_text(value)] for value in node.outputs], "graphs": [list(each) for each in inner],
        "w": _width(max(widths)), "h": TITLE + (ROW * len(rows) + BORDER if rows else 0),
    }  # fmt: skip


def _width(text: float) -> float:
    return round(min(WIDEST, max(NARROWEST, text + 18)))


def weight_of(graph: Graph, name: str) -> StoredTensor | None:
    """A weight of this graph or one around it."""
    around: Graph | None = graph
    while around is not None:
        if name in around.weights:
            return around.weights[name]
        around = around.parent
    return None


def _shown(tensor: StoredTensor) -> str:
    """The values of a small constant, the shape of any other weight."""
    if (
        tensor.count <= SMALL
        and tensor.dtype.kind in ("int", "uint", "float", "bool")
        and tensor.dtype.numpy is not None
    ):
        values = tensor.numpy().reshape(-1).tolist()
        text = ", ".join(map(_number, values))
        return f"= {text}" if not tensor.shape else f"= [{text}]"
    return "×".join(map(str, tensor.shape))


def _number(value: Any) -> str:
    """An element; integers that mean the end of a dimension are not spelled out."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if abs(value) < FAR else "−∞" if value < 0 else "∞"


def _text(value: Any) -> str:
    if isinstance(value, Graph):
        return f"graph of {counted(len(value.nodes), 'node')}"
    if hasattr(value, "tolist"):
        shown = value.tolist() if value.size <= 64 else f"{value.dtype}{list(value.shape)}"
        return str(shown)[:TEXT]
    return str(value)[:TEXT]
