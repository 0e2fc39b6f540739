"""The table of `summary` in Keras' shape."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

from ....tensors.core.tensor import Tensor
from ...report.layers import output_shapes
from ..core.symbolic import symbolic_tensors

UNITS = ("B", "KB", "MB", "GB", "TB")


def print_summary(
    model: Any, example: Tensor | None, print_fn: Callable[[str], Any] | None = None, line_length: int | None = None
) -> None:
    """Print a model's layers.

    Args:
        example: a batch of one item, for the shapes of models without symbolic tensors.
        print_fn: gets the text in place of the terminal.
        line_length: columns of a line.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    graph = model.graph
    layers = list(model.children())
    branched = graph is not None and any(len(node.inputs) > 1 for node in graph.nodes)
    shapes = {} if example is None or graph is not None else output_shapes(model, layers, example)
    table = Table(box=box.HEAVY_HEAD, show_lines=True)
    columns = ["Layer (type)", "Output Shape", "Param #", *(["Connected to"] if branched else [])]
    for column in columns:
        table.add_column(column, justify="right" if column == "Param #" else "left", overflow="fold")
    for each in layers:
        row = [f"{each.name} ({type(each).__name__})", _shape(each, shapes), f"{count(each.weights):,}"]
        table.add_row(*map(Text, [*row, *([_sources(each, graph)] if branched else [])]))
    target = None if print_fn is None else io.StringIO()
    console = Console(file=target, width=line_length)
    console.print(Text(f'Model: "{model.name}"', style="bold"))
    console.print(table)
    for title, weights in (
        ("Total params", model.weights),
        ("Trainable params", model.trainable_weights),
        ("Non-trainable params", model.non_trainable_weights),
    ):
        console.print(Text(f" {title}: {count(weights):,} ({_size(weights)})"))
    if print_fn is not None and target is not None:
        print_fn(target.getvalue())


def count(weights: Any) -> int:
    """Elements of weights."""
    return sum(math.prod(each.shape) for each in weights)


def _shape(layer: Any, shapes: dict[int, tuple[int, ...]]) -> str:
    if layer._nodes:
        found = symbolic_tensors(layer._nodes[-1].output)
        return ", ".join(str(each.shape) for each in found)
    shape = shapes.get(id(layer))
    return "?" if shape is None else str((None, *shape[1:]))


def _sources(layer: Any, graph: Any) -> str:
    sources = [
        f"{each.node.layer.name}[0][{each.index}]"
        for node in graph.nodes
        if node.layer is layer
        for each in node.inputs
        if each.node is not None
    ]
    return ", ".join(sources) or "-"


def _size(weights: Any) -> str:
    """Bytes in Keras' units."""
    size = float(sum(math.prod(each.shape) * each.dtype.bits // 8 for each in weights))
    unit = 0
    while size >= 1024 and unit + 1 < len(UNITS):
        size, unit = size / 1024, unit + 1
    return f"{size:.2f} {UNITS[unit]}"
