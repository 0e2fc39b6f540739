"""Divided programs: the first layers of a model on the device, the others on the CPU, where not all of its weights fit."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Sequence
from typing import Any

from ..copies import needed
from ..errors import UsageError
from ..graph import Graph, Node, Value
from ..program import Program as HostProgram
from ..program import Run
from ..program import of_graph as on_host
from ..tensor import Tensor
from .array import DeviceArray
from .memory import uploaded
from .place import kernels
from .pool import Share
from .program import Program, Runner, Tap, weights_of
from .timed import watched

LAYER = re.compile(r"(?:^|[./])(?:layers?|blk|blocks?|h)\.(\d+)\.")
"""A layer's number in the name of a weight, as models of language and vision have it."""
FILLED = 0.9
"""The part of the memory that weights and states may fill; the rest is for values."""
TOKENS = 2048
"""What symbolic dimensions of states are taken for when it is decided what fits."""
AUTO = "auto"


class Divided:
    """A program in two parts, used like one.

    Attributes:
        device, host: the parts; values of the first that the second needs are copied to the host.
        left: nodes on the CPU.
    """

    def __init__(self, graph: Graph, cut: int, pool: Share, threads: int, packed: dict[Any, Any], lent: Collection[str]) -> None:
        kernels()
        self.inputs = list(graph.inputs)
        self.pool = pool
        self.threads = threads
        self.left = graph.nodes[cut:]
        first = graph.nodes[:cut]
        made = {value for node in first for value in node.outputs if value.name}
        wanted = {value for node in self.left for value in needed(node)}
        between = [value for node in first for value in node.outputs if value in wanted]
        there = [*between, *(value for value in dict.fromkeys(graph.outputs) if value in made and value not in wanted)]
        here = [value for value in dict.fromkeys(graph.outputs) if value not in made]
        self.crossing = len(between)
        self._homes = [(True, there.index(value)) if value in made else (False, here.index(value)) for value in graph.outputs]
        part = dataclasses.replace(graph, nodes=first, outputs=there)
        self.device = Program(first, graph.inputs, there, weights_of(part), pool, {}, lent)
        wanted |= set(here)
        self._fed = [place for place, value in enumerate(graph.inputs) if value in wanted]
        inputs = [graph.inputs[place] for place in self._fed]
        rest = dataclasses.replace(graph, nodes=self.left, inputs=[*inputs, *between], outputs=here)
        self.host: HostProgram = on_host(rest, packed, lent)

    @property
    def runners(self) -> list[Runner]:
        """What has been planned for the device."""
        return self.device.runners

    def run(
        self, feeds: Sequence[Any], keep: frozenset[str] | None = None, on_tap: Tap | None = None, on_device: bool = False, move: bool = True,
    ) -> list[Any]:
        """As `Program.run`; with `on_device` results of the CPU are uploaded too, unless `move` says no."""
        there = self.device.run(feeds, keep, on_tap, on_device=True)
        taps = None if keep is None else re.compile("|".join(f"^{re.escape(name)}$" for name in sorted(keep)) or "(?!)")
        given = [_fetched(feeds[place]) for place in self._fed]
        here = self.host.run([*given, *map(_fetched, there[: self.crossing])], Run(self.threads, True, taps, on_tap, clock=watched()))
        if on_device:
            here = [uploaded(item, self.pool) for item in here] if move else here
        else:
            there = [_fetched(item) for item in there]
        return [there[place] if on_card else here[place] for on_card, place in self._homes]


def divided(
    graph: Graph, layers: int | str, pool: Share, threads: int, packed: dict[Any, Any], lent: Collection[str] = (),
) -> Divided | None:
    """The first `layers` layers on the device, ``auto`` for those that fit; None where all do. UsageError for a model without layers."""
    numbers = layers_of(graph)
    count = max((number for number in numbers if number is not None), default=-1) + 1
    if not count:
        raise UsageError("E-DEVICE-LAYERS", None, "the names of the model's weights do not number its layers", hint="Leave out --gpu-layers")
    kept = fitting(graph, numbers, pool.left(), lent) if layers == AUTO else int(layers)
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


def fitting(graph: Graph, numbers: Sequence[int | None], nbytes: int | None, lent: Collection[str] = ()) -> int:
    """How many layers, with all before them, fit into so many bytes: their weights, and states with room for `TOKENS` tokens."""
    total, seen, kept = 0, set[Value](), 0
    count = max((number for number in numbers if number is not None), default=-1) + 1
    if nbytes is None:
        return count
    for node, number in zip(graph.nodes, numbers, strict=True):
        if number is not None and number > kept:
            kept = number
        for value in needed(node):
            if value not in seen:
                seen.add(value)
                total += graph.weights[value.name].nbytes if value.name in graph.weights else _state(value) if value.name in lent else 0
        if total > FILLED * nbytes:
            return kept
    return count


def _state(value: Value) -> int:
    if value.shape is None or value.dtype is None:
        return 0
    first, *rest = value.shape if value.shape else (1,)
    lengths = [first if isinstance(first, int) else 1, *(length if isinstance(length, int) else TOKENS for length in rest)]
    return math.prod(lengths) * value.dtype.as_numpy().itemsize


def _fetched(feed: Any) -> Any:
    return feed.numpy() if isinstance(feed, DeviceArray | Tensor) else feed
