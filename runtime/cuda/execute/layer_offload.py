"""Layer offload: the first layers of a model run on the device, the others on the CPU, if not all weights fit."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Sequence
from typing import Any

from ...base.errors import UsageError
from ...execute.program import Program as HostProgram
from ...execute.run_options import RunOptions
from ...ir.clone import needed
from ...ir.graph import Graph, Node, Value
from ...region.region import Region, region_of
from ...tensor.stored_tensor import StoredTensor
from ..memory.device_array import DeviceArray
from ..memory.host_weight import weights_of
from ..memory.pool import PoolShare
from ..memory.run_memory import uploaded
from ..plan.kernel_api import load_kernels
from .program import Program, Runner, Tap
from .timing import current_clock

LAYER = re.compile(r"(?:^|[./])(?:layers?|blk|blocks?|h)\.(\d{1,9})\.")
"""Layer index in the name of a weight."""
WEIGHT_FRACTION = 0.9
"""Fraction of the memory for weights and states; the rest is for temporaries."""
ASSUMED_TOKENS = 2048
"""Length assumed for symbolic dimensions of states in the memory estimate."""
AUTO = "auto"


class OffloadedProgram:
    """A program split between device and CPU; has the interface of `Program`.

    Attributes:
        nodes: of both.
        device, host: the parts; values of the first that the second needs are copied to the host.
        left: nodes on the CPU.
    """

    def __init__(
        self,
        graph: Graph,
        cut: int,
        pool: PoolShare,
        threads: int,
        packed: dict[Any, Any],
        inplace_inputs: Collection[str],
    ) -> None:
        load_kernels()
        self.inputs = list(graph.inputs)
        self.nodes = graph.nodes
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
        self._locations = [
            (True, there.index(value)) if value in made else (False, here.index(value)) for value in graph.outputs
        ]
        part = dataclasses.replace(graph, nodes=first, outputs=there)
        self.device = Program(
            Region(first, graph.inputs, there, weights_of(part), {}, inplace_inputs=frozenset(inplace_inputs)), pool
        )
        wanted |= set(here)
        self._fed = [place for place, value in enumerate(graph.inputs) if value in wanted]
        inputs = [graph.inputs[place] for place in self._fed]
        rest = dataclasses.replace(graph, nodes=self.left, inputs=[*inputs, *between], outputs=here)
        self.host: HostProgram = HostProgram(region_of(rest, packed, inplace_inputs), specialized=True)

    @property
    def runners(self) -> list[Runner]:
        """The runners of the device's plans."""
        return self.device.runners

    def run(
        self,
        feeds: Sequence[Any],
        keep: frozenset[str] | None = None,
        on_tap: Tap | None = None,
        on_device: bool = False,
        move: bool = True,
    ) -> list[Any]:
        """As `Program.run`; with `on_device`, results of the CPU are uploaded too unless `move` is False."""
        there = self.device.run(feeds, keep, on_tap, on_device=True)
        taps = None if keep is None else re.compile("|".join(f"^{re.escape(name)}$" for name in sorted(keep)) or "(?!)")
        given = [_fetched(feeds[place]) for place in self._fed]
        here = self.host.run(
            [*given, *map(_fetched, there[: self.crossing])],
            RunOptions(self.threads, True, taps, on_tap, clock=current_clock()),
        )
        if on_device:
            here = [uploaded(item, self.pool) for item in here] if move else here
        else:
            there = [_fetched(item) for item in there]
        return [there[place] if on_card else here[place] for on_card, place in self._locations]


def offload_layers(
    graph: Graph,
    layers: int | str,
    pool: PoolShare,
    threads: int,
    packed: dict[Any, Any],
    inplace_inputs: Collection[str] = (),
) -> OffloadedProgram | None:
    """A program with the first `layers` layers on the device (``auto``: as many as fit); None if all do.

    Raises UsageError for a model without layers.
    """
    numbers = layers_of(graph)
    count = max((number for number in numbers if number is not None), default=-1) + 1
    if not count:
        raise UsageError(
            "E-DEVICE-LAYERS", None, "weight names do not contain layer indices", hint="Leave out --gpu-layers"
        )
    kept = count_fitting_layers(graph, numbers, pool.available(), inplace_inputs) if layers == AUTO else int(layers)
    if kept >= count:
        return None
    cut = next(place for place, number in enumerate(numbers) if number is not None and number >= kept)
    return OffloadedProgram(graph, cut, pool, threads, packed, inplace_inputs)


def layers_of(graph: Graph) -> list[int | None]:
    """The layer index of each node, from the names of its weights."""
    return [_layer(node, graph) for node in graph.nodes]


def _layer(node: Node, graph: Graph) -> int | None:
    names = [value.name for value in node.inputs if value is not None and value.name in graph.weights]
    found = [int(match[1]) for match in map(LAYER.search, names) if match]
    return max(found, default=None)


def count_fitting_layers(
    graph: Graph, numbers: Sequence[int | None], nbytes: int | None, inplace_inputs: Collection[str] = ()
) -> int:
    """The number of layers that fit into `nbytes`: weights, and states of `ASSUMED_TOKENS` tokens."""
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
                total += (
                    graph.weights[value.name].nbytes
                    if value.name in graph.weights
                    else _state(value)
                    if value.name in inplace_inputs
                    else 0
                )
        if total > WEIGHT_FRACTION * nbytes:
            return kept
    return count


def _state(value: Value) -> int:
    if value.shape is None or value.dtype is None:
        return 0
    first, *rest = value.shape if value.shape else (1,)
    lengths = [
        first if isinstance(first, int) else 1,
        *(length if isinstance(length, int) else ASSUMED_TOKENS for length in rest),
    ]
    return math.prod(lengths) * value.dtype.as_numpy().itemsize


def _fetched(feed: Any) -> Any:
    return feed.numpy() if isinstance(feed, DeviceArray | StoredTensor) else feed
