"""Names that a wrapper of training or a shared tensor left in a file: the wrapper's parts are left out, and names that
safetensors.torch.save_model dropped come back."""

from __future__ import annotations

import dataclasses

from ...runtime.base.units import counted
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor

WRAPPERS = frozenset(("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"))
"""Parts of names by torch.compile, FSDP, activation checkpointing and Lightning; no model has them itself."""
AROUND = "module."
"""What DataParallel and DeepSpeed put in front of all names."""
WHOLE = "model."
"""What a module that holds a model as `model` puts in front of all names; models have it themselves too."""
INNER = ("model.model.", "model.lm_head.", "model.transformer.h.")
"""Names that only such a module has."""
FORMAT = "safetensors"


def unwrapped(graph: Graph) -> Graph:
    """A graph of the same storage with the names of the model itself; `graph` where it has them already."""
    if graph.nodes or graph.parts or not graph.weights:
        return graph
    names = plain_names(graph)
    weights = {names[name]: tensor for name, tensor in graph.weights.items()}
    if len(weights) < len(names):
        return graph
    shared = _shared(graph, weights)
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
    return found


def _shared(graph: Graph, weights: dict[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Tensors by the names that save_model dropped because they are those of others, which its metadata says."""
    if graph.format != FORMAT:
        return {}
    pairs = {name: kept for name, kept in graph.metadata.items() if isinstance(kept, str) and name not in weights}
    return {name: weights[kept] for name, kept in pairs.items() if kept in weights}


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
