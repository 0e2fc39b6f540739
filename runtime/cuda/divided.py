"""Divided programs: the first layers of a model on the device, the others on the CPU, where not all of its weights fit."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ..copies import needed
from ..errors import UsageError
from ..graph import Graph, Node, Value
from ..program import Program as HostProgram
from ..program import Run
from ..program import of_graph as on_host
from ..tensor import Tensor
from .array import DeviceArray
from .element import holds
from .memory import Pool
from .place import kernels
from .program import Program, Runner, Tap, weights_of

LAYER = re.compile(r"(?:^|[./])(?:layers?|blk|blocks?|h)\.(\d+)\.")
"""A layer's number in the name of a weight, as models of language and vision have it."""
FILLED = 0.9
"""The part of the memory that weights may fill; the rest is for values."""
AUTO = "auto"


class Divided:
    """A program in two parts, used like one.

    Attributes:
        device, host: the parts; values that both need are copied to the host.
        left: nodes on the CPU.
    """

    def __init__(self, graph: Graph, cut: int, pool: Pool, threads: int, packed: dict[Any, Any], lent: Collection[str]) -> None:
        kernels()
        self.inputs = list(graph.inputs)
        self.threads = threads
        self.left = graph.nodes[cut:]
        first = graph.nodes[:cut]
        wanted = {value for node in self.left for value in needed(node)} | set(graph.outputs)
        between = [value for node in first for value in node.outputs if value in wanted]
        part = dataclasses.replace(graph, nodes=first, outputs=between)
        self.device = Program(first, graph.inputs, between, weights_of(part), pool, {}, lent)
        rest = dataclasses.replace(graph, nodes=self.left, inputs=[*graph.inputs, *between])
        self.host: HostProgram = on_host(rest, packed)

    @property
    def runners(self) -> list[Runner]:
        """What has been planned for the device."""
        return self.device.runners

    def run(
        self, feeds: Sequence[Any], keep: frozenset[str] | None = None, on_tap: Tap | None = None, on_device: bool = False,
    ) -> list[Any]:
        """As `Program.run`."""
        between = self.device.run(feeds, keep, on_tap)
        taps = None if keep is None else re.compile("|".join(f"^{re.escape(name)}$" for name in sorted(keep)) or "(?!)")
        found = self.host.run([*map(_fetched, feeds), *between], Run(self.threads, True, taps, on_tap))
        return [_uploaded(item) for item in found] if on_device else found


def divided(
    graph: Graph, layers: int | str, pool: Pool, threads: int, packed: dict[Any, Any], lent: Collection[str] = (),
) -> Divided | None:
    """The first `layers` layers on the device, ``auto`` for those whose weights fit; None where all do. UsageError for a model without layers."""
    numbers = layers_of(graph)
    count = max((number for number in numbers if number is not None), default=-1) + 1
    if not count:
        raise UsageError("E-DEVICE-LAYERS", None, "the names of the model's weights do not number its layers", hint="Leave out --gpu-layers")
    kept = fitting(graph, numbers, pool.left()) if layers == AUTO else int(layers)
    if kept >= count:
        return None
    cut = next(place for place, number in enumerate(numbers) if number is not None and number >= kept)
    return Divided(graph, cut, pool, threads, packed, lent)


def layers_of(graph: Graph) -> list[int | None]:
    """For each node the number of the layer that its weights are named for."""
    return [_layer(node, graph) for node in graph.nodes]


def _layer(node: Node, graph: Graph) -> int | None:
    names = [value.name for value in node.inputs if value is not None and value.name in graph.weights]
    found = [int(match[1]) for match in map(LAYER.search, names) if match]
    return max(found, default=None)


def fitting(graph: Graph, numbers: Sequence[int | None], nbytes: int | None) -> int:
    """How many layers' weights, with all before them, fit into so many bytes."""
    total, seen, kept = 0, set[Value](), 0
    count = max((number for number in numbers if number is not None), default=-1) + 1
    if nbytes is None:
        return count
    for node, number in zip(graph.nodes, numbers, strict=True):
        if number is not None and number > kept:
            kept = number
        for value in needed(node):
            if value not in seen and value.name in graph.weights:
                seen.add(value)
                total += graph.weights[value.name].nbytes
        if total > FILLED * nbytes:
            return kept
    return count


def _fetched(feed: Any) -> Any:
    return feed.numpy() if isinstance(feed, DeviceArray | Tensor) else feed


def _uploaded(found: Any) -> Any:
    from numba import cuda

    if not isinstance(found, np.ndarray) or not found.size or not holds(found.dtype):
        return found
    return DeviceArray(found.dtype, found.shape, cuda.to_device(np.ascontiguousarray(found).reshape(-1).view(np.uint8)))


