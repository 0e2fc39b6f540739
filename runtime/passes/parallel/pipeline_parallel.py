"""Pipeline parallelism: a language model in stages of consecutive layers, each of which another process computes.

A node belongs to the last layer whose weights it depends on. Nodes that depend on no layer (masks, rotary positions)
are computed by every stage that needs them; what else crosses from one stage to another, such as the hidden states, is
an output of the earlier one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ...base.dataclass import dataclass
from ...base.errors import UnsupportedError
from ...base.units import counted
from ...ir.clone import needed
from ...ir.graph import Graph, Value
from ..weights.extract_subgraph import extract

LAYER = re.compile(r"(?:^|\.)layers\.(\d{1,9})\.")
"""Names of the weights of a layer."""
OUTSIDE = -1
"""The layer of nodes that depend on the weights of none."""


@dataclass(frozen=True)
class StagePlan:
    """The part of a graph that one stage computes.

    Attributes:
        layers: the first layer and the last but one.
        received: values of earlier stages by name; sent: for later ones.
        outputs: of the whole graph.
    """

    layers: tuple[int, int]
    received: tuple[str, ...]
    sent: tuple[str, ...]
    outputs: tuple[str, ...]

    def extracted(self, graph: Graph) -> Graph:
        """The part of `graph`, whose outputs are `outputs`, then `sent`."""
        return extract(graph, self.received, [*self.outputs, *self.sent])


def pipeline_stages(graph: Graph, count: int) -> list[StagePlan]:
    """The plans of `count` stages of about equal bytes of weights.

    Raises UnsupportedError for a graph with fewer layers than stages, or without known names of weights.
    """
    layers = _layers(graph)
    total = max(layers.values(), default=OUTSIDE) + 1
    if total < count:
        why = f"the model has {counted(total, 'layer')} with known names of weights"
        raise UnsupportedError("E-PIPELINE-SPLIT", None, f"{why}, which {counted(count, 'stage')} cannot share")
    starts = _starts(graph, total, count)
    stage = {value: _stage(starts, layer) for value, layer in layers.items()}
    last = len(starts) - 1
    sent: list[dict[str, None]] = [{} for _ in starts]
    received: list[dict[str, None]] = [{} for _ in starts]
    for node in graph.nodes:
        own = max(stage[value] for value in node.outputs)
        for value in needed(node):
            before = stage.get(value, 0)
            if own > before and layers.get(value, OUTSIDE) > OUTSIDE:
                sent[before][value.name] = None
                received[own][value.name] = None
    outputs: list[list[str]] = [[] for _ in starts]
    for value in graph.outputs:
        outputs[stage.get(value, last) if layers.get(value, OUTSIDE) > OUTSIDE else last].append(value.name)
    ends = [*starts[1:], total]
    return [
        StagePlan((start, stop), tuple(received[index]), tuple(sent[index]), tuple(outputs[index]))
        for index, (start, stop) in enumerate(zip(starts, ends, strict=True))
    ]


def _layers(graph: Graph) -> dict[Value, int]:
    """The layer of each value that a node computes."""
    named = {name: int(match[1]) for name in graph.weights if (match := LAYER.search(name)) is not None}
    found: dict[Value, int] = {}
    for node in graph.nodes:
        layer = OUTSIDE
        for value in needed(node):
            layer = max(layer, found.get(value, named.get(value.name, OUTSIDE)))
        found.update(dict.fromkeys(node.outputs, layer))
    return found


def _starts(graph: Graph, total: int, count: int) -> list[int]:
    """The first layer of each stage."""
    sizes = [0] * total
    for name, tensor in graph.weights.items():
        match = LAYER.search(name)
        sizes[int(match[1]) if match is not None else total - 1] += tensor.nbytes
    starts, done = [0], 0
    for layer, size in enumerate(sizes):
        left = count - len(starts)
        full = done >= sum(sizes) * len(starts) / count
        if left and layer > starts[-1] and (full or total - layer <= left):
            starts.append(layer)
        done += size
    return starts


def _stage(starts: Sequence[int], layer: int) -> int:
    return max(index for index, start in enumerate(starts) if start <= max(layer, 0))


def stage_bytes(graph: Graph, plans: Sequence[StagePlan]) -> list[int]:
    """Bytes of the weights of each stage."""
    sizes: Mapping[str, int] = {name: tensor.nbytes for name, tensor in graph.weights.items()}
    return [sum(sizes[name] for name in plan.extracted(graph).weights) for plan in plans]
