"""The page: a model's nodes, values and weights as data inside one HTML file that needs nothing else and runs nothing of the model's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ...runtime.graph import Graph, Node, Value
from ...runtime.infer import infer
from ...runtime.metadata import to_json
from ...runtime.printable import printable
from ...runtime.tensor import Tensor
from ..graph_facts import type_text
from ..progress import ignored
from ..selection import select
from ..statistics import statistics
from .layers import HEIGHT, WIDTH, layout

TEMPLATE = Path(__file__).with_name("page.html")
MARK = "{{data}}"
MAX_NODES = 20_000
"""Nodes of one graph that are drawn; beyond it the page has the tables only, and says so."""
TEXT = 2_000


def page(graph: Graph, title: str, advance: Callable[[int], object] = ignored) -> str:
    """The HTML text. Weight values are read for the histograms; `advance` is called with the bytes of values looked at."""
    data = {
        "title": title,
        "format": graph.format,
        "facts": _facts(graph),
        "box": [WIDTH, HEIGHT],
        "graphs": list(_drawings(graph)),
        "weights": [_weight(graph, name, advance) for name in graph.weights],
        "metadata": [[str(key), _text(to_json(value))] for key, value in graph.metadata.items()],
        "notes": [[note.code, note.tensor or "", note.message] for note in graph.notes],
    }
    text = json.dumps(_visible(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return TEMPLATE.read_text(encoding="utf-8").replace(MARK, text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _visible(value: Any) -> Any:
    """`data` with its texts as a page may show them: what would reorder or hide what stands beside it is escaped."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {key: _visible(item) for key, item in value.items()}
    return [_visible(item) for item in value] if isinstance(value, list | tuple) else value


def take_types(graph: Graph, newest: Graph) -> None:
    """Give the values of a graph the dtypes and shapes that inference finds in the same graph at the newest opset."""
    infer(newest)
    for name, value in graph.values.items():
        known = newest.values.get(name)
        if known is not None:
            value.dtype, value.shape = value.dtype or known.dtype, value.shape or known.shape
            value.container = value.container or known.container


def _facts(graph: Graph) -> list[list[str]]:
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in graph.opsets.items())
    facts = [["files", str(len(graph.files))], ["weights", str(len(graph))], ["bytes", f"{graph.nbytes:,}"]]
    return [*facts, *([["nodes", str(len(graph.nodes))], ["opsets", opsets]] if graph.nodes else [])]


def _drawings(graph: Graph) -> Iterable[dict[str, Any]]:
    waiting = [("", graph)] if graph.nodes else []
    while waiting:
        name, inner = waiting.pop(0)
        yield _drawing(name, inner)
        for index, node in enumerate(inner.nodes):
            for key, value in node.attributes.items():
                if isinstance(value, Graph):
                    waiting.append((f"{name}/{node.name or f'{node.op.name} {index}'}/{key}", value))


def _drawing(name: str, graph: Graph) -> dict[str, Any]:
    """The boxes of a graph (inputs, nodes, outputs) and the edges between them, which carry dtype and shape."""
    if len(graph.nodes) > MAX_NODES:
        return {"name": name, "boxes": [], "edges": [], "width": 0, "height": 0, "skipped": len(graph.nodes)}
    fed = [value for value in graph.inputs if value.name not in graph.weights]
    ends_of = [[_end(kind, value) for value in values] for kind, values in (("input", fed), ("output", graph.outputs))]
    boxes = [*ends_of[0], *(_box(graph, node) for node in graph.nodes), *ends_of[1]]
    source = {value: index for index, value in enumerate(fed)}
    source.update({value: len(fed) + index for index, node in enumerate(graph.nodes) for value in node.outputs})
    ends: list[tuple[int, list[Value | None]]] = [(len(fed) + index, node.inputs) for index, node in enumerate(graph.nodes)]
    ends += [(len(fed) + len(graph.nodes) + index, [value]) for index, value in enumerate(graph.outputs)]
    edges = [(source[value], end, value) for end, values in ends for value in values if value is not None and source.get(value, end) < end]
    placed = layout(len(boxes), [(start, end) for start, end, _ in edges])
    for box, (x, y) in zip(boxes, placed.corners, strict=True):
        box["x"], box["y"] = round(x, 1), round(y, 1)
    return {
        "name": name, "boxes": boxes, "edges": [[start, end, value.name, type_text(value)] for start, end, value in edges],
        "width": round(placed.width, 1), "height": placed.height,
    }


def _end(kind: str, value: Value) -> dict[str, Any]:
    return {"kind": kind, "label": value.name, "type": type_text(value)}


def _box(graph: Graph, node: Node) -> dict[str, Any]:
    attributes = [[key, _text(value)] for key, value in node.attributes.items()]
    weights = graph.weights
    inputs = [["", ""] if value is None else [value.name, type_text(value) + " weight" * (value.name in weights)] for value in node.inputs]
    return {
        "kind": "node", "label": node.op.name, "domain": node.op.domain, "name": node.name, "attributes": attributes, "inputs": inputs,
        "outputs": [[value.name, type_text(value)] for value in node.outputs],
    }


def _text(value: Any) -> str:
    if isinstance(value, Graph):
        return f"graph of {len(value.nodes)} nodes"
    if hasattr(value, "tolist"):
        shown = value.tolist() if value.size <= 64 else f"{value.dtype}{list(value.shape)}"
        return str(shown)[:TEXT]
    return str(value)[:TEXT]


def values_read(graph: Graph, name: str) -> int:
    """Bytes of values that `page` tells of a weight, each looked at twice: those of blocks are the bytes of what they decode to."""
    tensor = graph.weights[name]
    if not _has_values(tensor):
        return 0
    plain = select(graph, name).plain()
    return 2 * plain.count * plain.dtype.as_numpy().itemsize


def _has_values(tensor: Tensor) -> bool:
    return tensor.dtype.name != "string" and (tensor.dtype.kind == "block" or tensor.dtype.numpy is not None)


def _weight(graph: Graph, name: str, advance: Callable[[int], object]) -> dict[str, Any]:
    tensor = graph.weights[name]
    row: dict[str, Any] = {"name": name, "dtype": tensor.dtype.name, "shape": list(tensor.shape), "bytes": tensor.nbytes}
    if not _has_values(tensor):
        return row
    found = statistics(select(graph, name), advance)
    return row | {
        "min": found.min, "max": found.max, "mean": found.mean, "std": found.std, "nan": found.nan, "inf": found.inf, "zeros": found.zeros,
        "counts": found.counts,
    }
