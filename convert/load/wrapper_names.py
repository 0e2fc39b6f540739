"""Names that a wrapper of training or a shared tensor left in a file: the wrapper's parts are left out, and names that
safetensors.torch.save_model or tying dropped come back."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

from ...runtime.base.errors import UnsupportedError
from ...runtime.base.units import counted
from ...runtime.contract.architecture import HF
from ...runtime.contract.weight_binding import TIED, find_architecture, spelled
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from .recognise import described, stated

WRAPPERS = frozenset(("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"))
"""Parts of names by torch.compile, FSDP, activation checkpointing and Lightning; no model has them itself."""
AROUND = "module."
"""Prefix of all names under DataParallel and DeepSpeed."""
WHOLE = "model."
"""Prefix of names in a module that holds a model as `model`; models use it themselves too."""
INNER = ("model.model.", "model.lm_head.", "model.transformer.h.")
"""Names that only such a module has."""
FORMAT = "safetensors"
OWN = ("embed.weight", "head.weight")
"""Architectures' own names of the embedding, and of the head that may share its tensor."""


def unwrapped(graph: Graph) -> Graph:
    """A graph of the same storage with the names of the model itself; `graph` where it has them already."""
    if graph.nodes or graph.parts or not graph.weights:
        return graph
    names = plain_names(graph)
    weights = {names[name]: tensor for name, tensor in graph.weights.items()}
    if len(weights) < len(names):
        return graph
    shared = _shared(graph, weights) | _tied(graph, weights)
    said = _what_changed(names)
    if said is None and not shared:
        return graph
    found = dataclasses.replace(graph, weights=weights | shared, notes=list(graph.notes))
    if said is not None:
        found.event("W-PREFIX", said)
    return found


def plain_names(graph: Graph) -> dict[str, str]:
    """For each name in a file that without wrappers."""
    found = {name: ".".join(part for part in name.split(".") if part not in WRAPPERS) for name in graph.weights}
    while all(name.startswith(AROUND) for name in found.values()):
        found = {name: plain.removeprefix(AROUND) for name, plain in found.items()}
    inside = any(name.startswith(INNER) for name in found.values())
    if inside and all(name.startswith(WHOLE) for name in found.values()):
        found = {name: plain.removeprefix(WHOLE) for name, plain in found.items()}
    prefix = _holder(graph, found)
    return {name: plain.removeprefix(prefix) for name, plain in found.items()} if prefix else found


def _holder(graph: Graph, names: dict[str, str]) -> str:
    """The attributes under which a module holds the model, in front of all names: those without which an architecture
    knows the names, and with which none does. Empty if there are none."""
    levels = zip(*(name.split(".")[:-1] for name in names.values()), strict=False)
    common = [parts[0] for parts in itertools.takewhile(lambda parts: len(set(parts)) == 1, levels)]
    prefixes = ["".join(f"{part}." for part in common[:count]) for count in range(len(common) + 1)]
    if not common or (known := _known_names(graph)) is None:
        return ""
    for prefix in prefixes:
        if known({name: plain.removeprefix(prefix) for name, plain in names.items()}):
            return prefix
    return ""


def _known_names(graph: Graph) -> Callable[[dict[str, str]], bool] | None:
    """Whether an architecture knows names: that of config.json, of which one begins as its weights do, else any that
    names imply. None where config.json states an architecture of several parts, or one that is not known."""
    said = stated(graph)
    if said is None or said[1].get("model_type") is None:
        return lambda names: described(_renamed(graph, names)) is not None
    try:
        architecture = find_architecture(*said)
    except UnsupportedError:
        return None
    ways = [way for row in architecture.weights for way in row.stored(said[0])]
    first = {name.partition(".")[0] for name in (*architecture.prefixes, *(name for way in ways for name in way.names))}
    if architecture.parts or not ways:
        return None
    return lambda names: any(name.partition(".")[0] in first for name in names.values())


def _renamed(graph: Graph, names: dict[str, str]) -> Graph:
    return dataclasses.replace(graph, weights={names[name]: tensor for name, tensor in graph.weights.items()})


def _shared(graph: Graph, weights: dict[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Tensors by the names that save_model dropped because they are those of others, which its metadata says."""
    if graph.format != FORMAT:
        return {}
    pairs = {name: kept for name, kept in graph.metadata.items() if isinstance(kept, str) and name not in weights}
    return {name: weights[kept] for name, kept in pairs.items() if kept in weights}


def _tied(graph: Graph, weights: dict[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The embedding of a tied model, by config.json or the architecture's default, where only the head's name is
    stored."""
    said = stated(graph)
    if said is None or said[0] != HF:
        return {}
    try:
        architecture = find_architecture(*said)
    except UnsupportedError:
        return {}
    if said[1].get(TIED, architecture.tied) is not True:
        return {}
    rows = {row.name: row for row in architecture.weights}
    embedding, head = ([way.names[0] for way in rows[name].stored(HF)] if name in rows else [] for name in OWN)
    held = next(filter(None, (spelled(name, architecture, weights) for name in head)), None)
    if held is None or not embedding or any(spelled(name, architecture, weights) for name in embedding):
        return {}
    return {embedding[0]: weights[held]}


def _what_changed(names: dict[str, str]) -> str | None:
    changed = [(name, plain) for name, plain in names.items() if name != plain]
    if not changed:
        return None
    name, plain = changed[0]
    if name.endswith(plain) and all(one.removesuffix(other) == name.removesuffix(plain) for one, other in changed):
        return f"{name.removesuffix(plain)!r} in front of {counted(len(changed), 'name')} is left out"
    parts = sorted({part for one, other in changed for part in _lost(one, other)})
    return f"{', '.join(map(repr, parts))} in {counted(len(changed), 'name')} is left out"


def _lost(name: str, plain: str) -> list[str]:
    left = iter(plain.split("."))
    wanted = next(left, None)
    lost = []
    for part in name.split("."):
        if part == wanted:
            wanted = next(left, None)
        else:
            lost.append(f"{part}.")
    return lost
