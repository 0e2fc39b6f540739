"""Models that were quantized elsewhere: what their config.json says of it, and their weights as numbers under the usual names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..ops.quants.schemes import schemes
from ..runtime.errors import FormatError, UnsupportedError
from ..runtime.graph import Graph
from ..runtime.json import parse
from ..runtime.scheme import Checkpoint, Unpacked
from ..runtime.source import Source
from ..runtime.storage import Held, Region

CONFIG = "config.json"
DECLARED = ("quantization_config", "compression_config")
NESTED = "text_config"
BESIDE = ("quantize_config.json", "quant_config.json")
"""Files that say the same as config.json."""


def configuration(graph: Graph) -> dict[str, Any] | None:
    """The config.json beside a model; None where there is none, or it is no object."""
    storage = graph.attachments.get(CONFIG)
    if storage is None:
        return None
    source = storage.source if isinstance(storage, Region) else Source(graph.files[0])
    said = parse(bytes(storage.read(0, storage.nbytes)), source, 0, "E-CONFIG-JSON", constants=True)
    return said if isinstance(said, dict) else None


def declared(config: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What a config.json says of quantization; None where it says nothing."""
    for level in (config, (config or {}).get(NESTED)):
        for key in DECLARED if isinstance(level, Mapping) else ():
            if isinstance(level, Mapping) and isinstance(level.get(key), Mapping) and level[key]:
                return level[key]
    return None


def declaration(graph: Graph) -> Mapping[str, Any] | None:
    """What the config.json beside a model says of quantization; a file without these words need not even be JSON."""
    storage = graph.attachments.get(CONFIG)
    if storage is None or not any(key.encode() in bytes(storage.read(0, storage.nbytes)) for key in DECLARED):
        return None
    return declared(configuration(graph))


def method_of(said: Mapping[str, Any]) -> str:
    """The name of a scheme, which the oldest files of bitsandbytes leave out."""
    usual = "bitsandbytes" if said.get("load_in_8bit") or said.get("load_in_4bit") else None
    return str(said.get("quant_method", usual))


def found(graph: Graph) -> Unpacked | None:
    """What a model's weights are, as numbers, where it is stored in a scheme; `graph` stays as it is.

    Raises UnsupportedError for a scheme that is not known, FormatError for tensors that do not fit it.
    """
    said = None if graph.nodes else declaration(graph)
    if said is None:
        return None
    path = graph.files[0] if graph.files else None
    scheme = schemes().get(method_of(said))
    if scheme is None:
        why = f"the weights are quantized by {method_of(said)[:80]!r}, which is not known"
        raise UnsupportedError("E-PACKED-METHOD", path, why, hint=f"Known are: {', '.join(sorted(schemes()))}")
    unpacked = scheme.unpack(Checkpoint(said, graph.weights, path))
    for name, parts in unpacked.parts.items():
        if name in graph.weights and name not in parts:
            raise FormatError("E-PACKED-TWICE", path, f"the weight {name!r} is stored both quantized and in plain form")
    return unpacked if unpacked.weights else None


def unpack(graph: Graph) -> list[str]:
    """Put numbers, computed when they are read, in place of what is stored of quantized weights; the names of these weights."""
    unpacked = found(graph)
    if unpacked is None:
        return []
    whole = {part: name for name, parts in unpacked.parts.items() for part in parts}
    weights: dict[str, Any] = {}
    for name, tensor in graph.weights.items():
        if name in whole:
            weights.setdefault(whole[name], unpacked.weights[whole[name]])
        elif name not in unpacked.unused:
            weights[name] = tensor
    graph.weights = weights
    _forget(graph)
    graph.note("W-PREQUANTIZED", f"{summary(unpacked)} dequantized on reading")
    return list(unpacked.weights)


def note_kept(graph: Graph) -> None:
    """Say on `graph`, whose weights go out as they are stored, that they are quantized."""
    said = declaration(graph)
    if said is not None and method_of(said) in schemes() and (unpacked := found(graph)) is not None:
        graph.note("W-PREQUANTIZED", f"{summary(unpacked)} left as stored; --dtype f16 dequantizes them")


def summary(unpacked: Unpacked) -> str:
    """The scheme, and how many matrices it stores."""
    count = len(unpacked.weights)
    return f"{unpacked.title}: {count} {'matrices' if count != 1 else 'matrix'}"


def _forget(graph: Graph) -> None:
    """Take what is said of quantization out of the files beside the model."""
    config = configuration(graph)
    assert config is not None
    for level in (config, config.get(NESTED)):
        if isinstance(level, dict):
            for key in DECLARED:
                level.pop(key, None)
    graph.attachments = {name: storage for name, storage in graph.attachments.items() if name not in BESIDE}
    graph.attachments[CONFIG] = Held(json.dumps(config, indent=2).encode() + b"\n")
