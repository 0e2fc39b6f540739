"""Layer pruning: removes layers of a model and renumbers the others, like llama-quantize."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...runtime.base.errors import UsageError
from ...runtime.ir.graph import Graph
from ..translate.model_facts import order

_BLOCK = re.compile(r"blk\.(\d{1,9})\.")


def prune(graph: Graph, layers: Sequence[int]) -> dict[str, str]:
    """Leave `layers` out of `graph`; the old names of the tensors that have new ones.

    The number of blocks and lists with one value for each block change in the metadata too.
    """
    if not layers:
        return {}
    numbers = _numbers(graph, frozenset(layers))
    weights, old = {}, {}
    for name in sorted(graph.weights, key=order):
        match = _BLOCK.search(name)
        number = None if match is None else numbers[int(match[1])]
        if match is None:
            weights[name] = graph.weights[name]
        elif number is not None:
            new = f"{name[: match.start(1)]}{number}{name[match.end(1) :]}"
            weights[new] = graph.weights[name]
            old[new] = name
    graph.weights = weights
    _prune_metadata(graph, frozenset(layers), 1 + max(number for number in numbers.values() if number is not None))
    return old


def _numbers(graph: Graph, layers: frozenset[int]) -> dict[int, int | None]:
    """The new number of each block, None for those that go."""
    present = sorted({int(match[1]) for name in graph.weights if (match := _BLOCK.search(name))})
    missing = layers - set(present)
    if missing:
        why = f"no block {min(missing)} in the model"
        raise UsageError("E-PRUNE", None, why, hint=f"The model has the blocks {_ranges(present)}")
    if layers >= set(present):
        raise UsageError("E-PRUNE", None, "pruning would leave no block", hint="Prune fewer layers")
    first, numbers = min(layers), {}
    following = first
    for block in present:
        numbers[block] = None if block in layers else block if block < first else following
        following += block not in layers and block > first
    return numbers


def _ranges(present: Sequence[int]) -> str:
    return f"{present[0]} to {present[-1]}" if present else "none"


def _prune_metadata(graph: Graph, layers: frozenset[int], left: int) -> None:
    import numpy

    arch = graph.metadata.get("general.architecture")
    key = f"{arch}.block_count"
    before = graph.metadata.pop(key, None)
    if before is None:
        return
    for name, value in graph.metadata.items():
        if name.startswith(f"{arch}.") and isinstance(value, numpy.ndarray) and value.size == before:
            graph.metadata[name] = numpy.delete(value, sorted(layers))
            graph.note("W-PRUNE", f"{name} has one value for each block; the values of pruned blocks are removed")
    graph.metadata[key] = numpy.uint32(left)
