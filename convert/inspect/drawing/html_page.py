"""HTML page of a model: its nodes, values and weights as data inside one self-contained file.

Nothing of the model's is run: its names are data of the page's own script, and shown as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ....runtime.base.printable import printable
from ....runtime.base.units import counted
from ....runtime.ir.graph import Graph, Value
from ....runtime.ir.shape_inference import infer
from ....runtime.tensor.stored_tensor import StoredTensor
from ...console.output import human_size
from ...console.progress import ignored
from ...translate.metadata_value import readable
from .. import tensor_values
from ..graph_summary import ORIGIN, type_text
from ..selection import select
from ..statistics import statistics
from .edge_label import Area, labels
from .layered_layout import layout
from .node_box import box_of, end_of, weight_of

TEMPLATE = Path(__file__).with_name("page.html")
DATA, POLICY = "{{data}}", "{{policy}}"
MAX_NODES = 20_000
"""Nodes of one graph that are drawn; beyond it the page has the tables only, and says so."""
TEXT = 2_000
ITEMS = 100
"""Items of a list in the metadata that are shown."""
LONGEST_DIM, LONGEST_LABEL = 14, 30
"""Characters of a symbolic dimension, and of a label."""


def page(graph: Graph, title: str, advance: Callable[[int], object] = ignored) -> str:
    """The HTML text. Weight values are read for the histograms; `advance` is called with the bytes of `work` done."""
    data = {
        "title": title,
        "format": graph.format,
        "facts": _facts(graph),
        "inputs": [[value.name, type_text(value)] for value in graph.inputs if value.name not in graph.weights],
        "outputs": [[value.name, type_text(value)] for value in graph.outputs],
        "graphs": list(_drawings(graph)),
        "weights": [_weight(graph, name, advance) for name in graph.weights],
        "metadata": [[str(key), _said(value)] for key, value in graph.metadata.items()],
        "notes": [[note.code, note.tensor or "", note.message] for note in graph.notes],
    }
    text = json.dumps(_visible(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    template = TEMPLATE.read_text(encoding="utf-8")
    return template.replace(POLICY, _policy(template)).replace(DATA, text.encode("utf-8", "replace").decode())


def work(graph: Graph) -> int:
    """The bytes of values that `page` looks at: each value twice, decoded."""
    plain = [tensor_values.plain(tensor) for tensor in graph.weights.values() if _measurable(tensor)]
    return 2 * sum(tensor.count * tensor.dtype.as_numpy().itemsize for tensor in plain if tensor is not None)


def _policy(template: str) -> str:
    """The page's content security policy: its own script and style, and pictures that it has made itself."""
    allowed = []
    for kind, pattern in (("style", r"<style>(.*?)</style>"), ("script", r"<script>(.*?)</script>")):
        hashes = (hashlib.sha256(part.encode()).digest() for part in re.findall(pattern, template, re.DOTALL))
        allowed.append(f"{kind}-src " + " ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in hashes))
    return "; ".join(["default-src 'none'", "img-src blob: data:", *allowed])


def _visible(value: Any) -> Any:
    """`data` with its texts as a page may show them: what would reorder or hide what stands next to it is escaped."""
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
    """Names and values for the head of the page."""
    carried = graph.carried or {}
    producer = " ".join(str(carried[key]) for key in ("producer_name", "producer_version") if carried.get(key))
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in graph.opsets.items())
    dtypes = sorted({tensor.dtype.name for tensor in graph.weights.values()})
    others = [key for key in ORIGIN if carried.get(key) and "producer" not in key]
    described = [[key.replace("_", " "), str(carried[key])] for key in others]
    facts = [
        ["parameters", f"{graph.parameters:,}"], ["size", human_size(graph.nbytes)], ["tensors", f"{len(graph):,}"],
        ["dtypes", ", ".join(dtypes)], ["files", str(len(graph.files))],
        *([["nodes", f"{len(graph.nodes):,}"], ["opsets", opsets]] if graph.nodes else []),
        ["producer", producer], *described,
    ]  # fmt: skip
    return [[name, value[:TEXT]] for name, value in facts if value]


def _drawings(graph: Graph) -> Iterable[dict[str, Any]]:
    """The graph and those inside its nodes, level by level."""
    found = [("", graph)] if graph.nodes else []
    for name, inner in found:
        below: dict[int, list[tuple[str, int]]] = {}
        for index, node in enumerate(inner.nodes):
            for key, value in node.attributes.items():
                for part in value if isinstance(value, list) else [value]:
                    if isinstance(part, Graph):
                        below.setdefault(index, []).append((key, len(found)))
                        found.append((f"{name}/{node.name or f'{node.op.name} {index}'}/{key}", part))
        yield _drawing(name, inner, below)


def _drawing(name: str, graph: Graph, below: Mapping[int, Sequence[tuple[str, int]]]) -> dict[str, Any]:
    """The boxes of a graph (inputs, nodes, outputs) and the edges between them, which carry dtype and shape."""
    if len(graph.nodes) > MAX_NODES:
        return {"name": name, "boxes": [], "edges": [], "width": 0, "height": 0, "skipped": len(graph.nodes)}
    fed = [*(value for value in graph.inputs if value.name not in graph.weights), *_captured(graph)]
    inner = [box_of(graph, node, below.get(index, ())) for index, node in enumerate(graph.nodes)]
    first, last = (
        [end_of(kind, value) for value in values] for kind, values in (("input", fed), ("output", graph.outputs))
    )
    boxes = [*first, *inner, *last]
    source = {value: index for index, value in enumerate(fed)}
    source.update({value: len(fed) + index for index, node in enumerate(graph.nodes) for value in node.outputs})
    read: list[list[Value | None]] = [node.inputs for node in graph.nodes]
    read += [[value] for value in graph.outputs]
    ends = list(enumerate(read, len(fed)))
    edges = [
        (source[value], end, value)
        for end, values in ends for value in dict.fromkeys(values) if value is not None and source.get(value, end) < end
    ]  # fmt: skip
    placed = layout(len(boxes), [(start, end) for start, end, _ in edges], [(box["w"], box["h"]) for box in boxes])
    for box, (x, y) in zip(boxes, placed.corners, strict=True):
        box["x"], box["y"] = round(x, 1), round(y, 1)
    texts = [_label(value) for _, _, value in edges]
    areas = [Area(box["x"], box["y"], box["x"] + box["w"], box["y"] + box["h"]) for box in boxes]
    places = labels(placed.paths, texts, [value.name for _, _, value in edges], areas)
    drawn = [
        [start, end, value.name, type_text(value), path, place, text]
        for (start, end, value), path, place, text in zip(edges, placed.paths, places, texts, strict=True)
    ]
    return {"name": name, "boxes": boxes, "edges": drawn, "width": round(placed.width, 1), "height": placed.height}


def _captured(graph: Graph) -> list[Value]:
    """The values of graphs around this one that its nodes read, weights apart."""
    if graph.parent is None:
        return []
    own = {*graph.inputs, *(value for node in graph.nodes for value in node.outputs)}
    read = dict.fromkeys(value for node in graph.nodes for value in node.inputs)
    return [value for value in read if value is not None and value not in own and weight_of(graph, value.name) is None]


def _label(value: Value) -> str:
    """``1×64×?`` for floats, with the dtype in front for anything else."""
    if value.shape is None or value.container:
        return ""
    dims = "×".join("?" if dim is None else _short(str(dim), LONGEST_DIM) for dim in value.shape)
    dtype = "" if value.dtype is None or (value.dtype.name == "f32" and dims) else value.dtype.name
    return _short(" ".join(part for part in (dtype, dims) if part), LONGEST_LABEL)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _said(value: Any) -> str:
    """A value of the metadata as text; long lists end early."""
    if getattr(value, "shape", None) == ():
        return str(value)  # the shortest digits that are this number in its own type
    plain = readable(value)
    if isinstance(plain, list) and len(plain) > ITEMS:
        return f"{str(plain[:ITEMS])[:-1][:TEXT]}, … {counted(len(plain), 'item')}]"
    return str(plain)[:TEXT]


def _measurable(tensor: StoredTensor) -> bool:
    return tensor.dtype.name != "string" and tensor_values.plain(tensor) is not None


def _weight(graph: Graph, name: str, advance: Callable[[int], object]) -> dict[str, Any]:
    tensor = graph.weights[name]
    row: dict[str, Any] = {"name": name, "dtype": tensor.dtype.name}
    row |= {"shape": list(tensor.shape), "bytes": tensor.nbytes}
    if not _measurable(tensor):
        return row
    found = statistics(select(graph, name), advance)
    return row | {
        "min": found.min,
        "max": found.max,
        "mean": found.mean,
        "std": found.std,
        "nan": found.nan,
        "inf": found.inf,
        "zeros": found.zeros,
        "counts": found.counts,
    }
