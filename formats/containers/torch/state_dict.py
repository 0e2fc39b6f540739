"""State-dict search: which part of a checkpoint is the weights; plain values next to it become metadata."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from ....runtime.base.errors import FormatError, UsageError
from ....runtime.base.units import counted
from ....runtime.contract.format import ReadOptions
from ....runtime.contract.metadata import from_strings
from ....runtime.ir.graph import Graph
from ....runtime.tensor.stored_tensor import StoredTensor
from ..pickle.cursor import Span
from .checkpoint_walk import Leaf, Path, Walk
from .legacy_stream import Checkpoint

KEYS = (
    "state_dict",
    "model_state_dict",
    "model_state",
    "model",
    "module",
    "network",
    "net",
    "weights",
    "generator",
    "params_ema",
    "params",
    "ema_state_dict",
    "model_ema",
    "ema_model",
    "ema",
)
"""Keys under which training scripts store the weights; the first one present is used."""
AVERAGED = "ema"
"""The key of a moving average of a model that is pickled whole, which ultralytics takes before the model."""
VALUE_LIMIT = 1 << 20
TOTAL_LIMIT = 16 << 20
ELEMENT = 8
OTHERS_LIMIT = 50_000
"""Limit of values that are not tensors; a list of plain values counts as one."""
LISTED = 8
WORD = 1 << 63


def fill(graph: Graph, checkpoint: Checkpoint, options: ReadOptions, depth: int) -> None:
    """Put the weights and the metadata of a checkpoint into `graph`, with notes on what was chosen and what was
    left."""
    holding: list[Leaf] = []
    others: list[Leaf] = []
    uncounted = 0
    for leaf in Walk(checkpoint, graph.files[0], depth).leaves():
        if isinstance(leaf.value, StoredTensor):
            if leaf.owner is None:
                holding.append(leaf)
        elif len(others) < OTHERS_LIMIT:
            others.append(leaf)
        else:
            uncounted += 1
    prefix = _chosen(graph, holding, options.key) if options.key is not None else _found(graph, holding)
    left = _beside(holding, prefix)
    for leaf in holding:
        if leaf.path[: len(prefix)] == prefix:
            _add_weight(graph, leaf, leaf.path[len(prefix) :])
    _add_metadata(graph, [leaf for leaf in others if leaf.dropped is None], prefix, left)
    _note_dropped(graph, [leaf for leaf in others if leaf.dropped is not None], left)
    if uncounted:
        graph.note(
            "W-METADATA",
            f"{counted(uncounted, 'value', verb='is')} left out: not tensors, and beyond the first {OTHERS_LIMIT:,}",
        )
    from_strings(dict(checkpoint.metadata), graph)


def _found(graph: Graph, holding: Sequence[Leaf]) -> Path:
    """The path to the weights by key names: down through the known keys, until most tensors are not under one of
    them."""
    prefix: Path = ()
    while True:
        counts: dict[str, int] = {}
        objects: set[str] = set()
        direct = 0
        for leaf in holding:
            if leaf.path[: len(prefix)] == prefix:
                if len(leaf.path) > len(prefix) + 1 and (leaf.within is None or leaf.within > len(prefix)):
                    key = leaf.path[len(prefix)]
                    counts[key] = counts.get(key, 0) + 1
                    if leaf.within == len(prefix) + 1:
                        objects.add(key)
                else:
                    direct += 1
        known = [key for key in KEYS if key in counts]
        if not known or sum(counts[key] for key in known) < direct:
            break
        prefix = (*prefix, AVERAGED if AVERAGED in objects else known[0])
    if prefix:
        others = [".".join(path) for path in _beside(holding, prefix)]
        listed = ", ".join(map(repr, others[:LISTED])) + (
            f" and {len(others) - LISTED} more" if len(others) > LISTED else ""
        )
        graph.event("W-KEY", f"weights found under {'.'.join(prefix)!r}" + (f"; others: {listed}" if others else ""))
    return prefix


def _chosen(graph: Graph, holding: Sequence[Leaf], key: str) -> Path:
    """The path that the user named."""
    for leaf in holding:
        for length in range(1, len(leaf.path)):
            if ".".join(leaf.path[:length]) == key:
                return leaf.path[:length]
    found = dict.fromkeys(leaf.path[0] for leaf in holding if len(leaf.path) > 1)
    names = ", ".join(list(found)[:LISTED]) or "none, the tensors are at the top"
    raise UsageError("E-PTH-KEY", graph.files[0], f"holds no tensors under {key!r}", hint=f"Keys with tensors: {names}")


def _beside(holding: Sequence[Leaf], prefix: Path) -> dict[Path, None]:
    """The paths, one step off the way to `prefix`, with other tensors."""
    found: dict[Path, None] = {}
    for leaf in holding:
        same = next((step for step, key in enumerate(prefix) if leaf.path[step : step + 1] != (key,)), None)
        if same is not None:
            found[leaf.path[: same + 1]] = None
    return found


def _is_under(path: Path, places: Container[Path]) -> bool:
    return any(path[:length] in places for length in range(1, len(path) + 1))


def _add_weight(graph: Graph, leaf: Leaf, path: Path) -> None:
    name = ".".join(path) if path else "value"
    if name in graph.weights:
        hint = "Choose one part of the file with --key"
        why = f"two tensors are called {name!r} when nested keys are joined by dots"
        raise FormatError("E-PTH-NAME-TWICE", graph.files[0], why, hint=hint)
    graph.weights[name] = leaf.value
    if leaf.quantized is not None:
        graph.event("W-DEQUANTIZED", f"was {leaf.quantized}; read as its f32 values", name)


def _add_metadata(graph: Graph, leaves: Sequence[Leaf], prefix: Path, left: Container[Path]) -> None:
    """Plain values under dotted keys; what is next to tensors that are not taken stays with them, and an object's
    attributes with it, except those of the module whose weights are taken."""
    total, dropped = 0, []
    for leaf in leaves:
        if (leaf.within is not None and not _is_attribute(leaf, prefix)) or _is_under(leaf.path, left):
            continue
        path = leaf.path[len(prefix) :] if leaf.path[: len(prefix)] == prefix else leaf.path
        value, size = _meta(leaf.value)
        if size > VALUE_LIMIT or total + size > TOTAL_LIMIT:
            dropped.append(".".join(path) if path else "value")
            continue
        total += size
        graph.metadata.setdefault(".".join(path) if path else "value", value)
    if dropped:
        graph.note("W-METADATA", f"too large for metadata and left out: {', '.join(dropped[:LISTED])}")


def _is_attribute(leaf: Leaf, prefix: Path) -> bool:
    """Whether a value is a public attribute of the module at `prefix`, or in one that is a dictionary."""
    if leaf.owner != len(prefix) or leaf.path[: len(prefix)] != prefix:
        return False
    name, *inner = leaf.path[len(prefix) :] or ("",)
    return len(inner) < 2 and name != "training" and not name.startswith("_")


def _meta(value: Any) -> tuple[Any, int]:
    """A metadata value and its size in bytes, roughly."""
    if isinstance(value, Span):
        return (
            (bytes(value.storage.read(0, value.nbytes)), value.nbytes)
            if value.nbytes <= VALUE_LIMIT
            else (b"", value.nbytes)
        )
    if isinstance(value, list):
        if len(value) * ELEMENT > VALUE_LIMIT:
            return [], len(value) * ELEMENT
        made = [_meta(item) for item in value]
        return [item for item, _ in made], sum(size for _, size in made)
    if isinstance(value, int) and not -WORD <= value < WORD:
        value = str(value)
    if isinstance(value, str):
        text = value.encode("utf-8", "replace").decode()
        return text, len(text)
    if isinstance(value, complex):
        import numpy

        return numpy.complex128(value), 16
    return value, len(value) if isinstance(value, bytes) else ELEMENT


def _note_dropped(graph: Graph, leaves: Sequence[Leaf], left: Container[Path]) -> None:
    """One note for each type of value that is neither tensor nor plain data."""
    kinds: dict[str, list[str]] = {}
    for leaf in leaves:
        if not _is_under(leaf.path, left):
            kinds.setdefault(leaf.dropped or "", []).append(".".join(leaf.path))
    for kind, names in kinds.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        graph.note(
            "W-DROPPED",
            f"{names[0] or 'the whole value'}{more} is {kind}, which is neither a tensor nor plain data; left out",
        )
