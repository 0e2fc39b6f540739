"""GPTQ, AWQ, bitsandbytes and similar checkpoints: their configuration, and dequantization on reading."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ...ops.quants.schemes import schemes
from ...runtime.base.errors import FormatError, UnsupportedError
from ...runtime.base.limits import Budget, current
from ...runtime.base.units import counted
from ...runtime.base.untrusted.json import parse
from ...runtime.contract.quantization_scheme import Checkpoint, Unpacked
from ...runtime.ir.graph import Graph
from ...runtime.tensor.dtype import I8
from ...runtime.tensor.storage import Held, Region

CONFIG = "config.json"
DECLARED = ("quantization_config", "compression_config")
NESTED = "text_config"


def _of_model_optimizer(stated: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = stated.get("quantization")
    inner = inner if isinstance(inner, Mapping) and inner.get("quant_algo") else {}
    return {"quant_method": "modelopt", "ignore": inner.get("exclude_modules"), **inner} if inner else {}


BESIDE: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    "quantize_config.json": lambda stated: {"quant_method": "gptq", **stated},
    "quant_config.json": lambda stated: {"quant_method": "awq", **stated},
    "hf_quant_config.json": _of_model_optimizer,
}
"""Files of AutoGPTQ, AutoAWQ and NVIDIA's Model Optimizer that say what config.json has as quantization_config."""


class InMemory:
    """A file in memory: a path for messages, and a budget."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.budget = Budget(path, current())


def configuration(graph: Graph, name: str = CONFIG) -> dict[str, Any] | None:
    """The config.json of a model's directory, or another of its files; None if it is missing or not a JSON object."""
    storage = graph.attachments.get(name)
    if storage is None:
        return None
    source = storage.source if isinstance(storage, Region) else InMemory(graph.files[0] if graph.files else name)
    stated = parse(bytes(storage.read(0, storage.nbytes)), source, 0, "E-CONFIG-JSON", constants=True)
    return stated if isinstance(stated, dict) else None


def declared(config: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The quantization settings of a config.json; None without them."""
    for level in (config, (config or {}).get(NESTED)):
        for key in DECLARED if isinstance(level, Mapping) else ():
            if isinstance(level, Mapping) and isinstance(level.get(key), Mapping) and level[key]:
                return level[key]
    return None


def has_scaled_rows(graph: Graph) -> bool:
    """Whether a file without config.json has a matrix of bitsandbytes' 8 bits, which its names and dtypes show."""
    for name, scales in graph.weights.items():
        weight = graph.weights.get(f"{name.removesuffix('.SCB')}.weight") if name.endswith(".SCB") else None
        if weight is not None and weight.dtype == I8 and weight.shape[:-1] == scales.shape:
            return True
    return False


def declaration(graph: Graph) -> Mapping[str, Any] | None:
    """The declaration of quantization in the config.json next to a model, or in another file; a config.json without it
    need not be JSON."""
    storage = graph.attachments.get(CONFIG)
    if storage is None:
        return {"quant_method": "bitsandbytes"} if has_scaled_rows(graph) else None
    if any(key.encode() in bytes(storage.read(0, storage.nbytes)) for key in DECLARED):
        stated = declared(configuration(graph))
        if stated is not None:
            return stated
    for name, read in BESIDE.items():
        beside = configuration(graph, name)
        if beside and (stated := read(beside)):
            return stated
    return None


def method(stated: Mapping[str, Any]) -> str:
    """Name of the quantization scheme, which the oldest files of bitsandbytes omit."""
    usual = "bitsandbytes" if stated.get("load_in_8bit") or stated.get("load_in_4bit") else None
    return str(stated.get("quant_method", usual))


def dequantized(graph: Graph) -> Unpacked | None:
    """The dequantized weights of a model that is stored in a scheme, None for other models; `graph` is not changed.

    Raises UnsupportedError for an unknown scheme, FormatError for tensors that do not match it.
    """
    stated = None if graph.nodes else declaration(graph)
    if stated is None:
        return None
    path = graph.files[0] if graph.files else None
    scheme = schemes().get(method(stated))
    if scheme is None:
        why = f"the weights are quantized by {method(stated)[:80]!r}, which is not supported"
        raise UnsupportedError("E-PACKED-METHOD", path, why, hint=f"Supported: {', '.join(sorted(schemes()))}")
    unpacked = scheme.unpack(Checkpoint(stated, graph.weights, path))
    for name, parts in unpacked.parts.items():
        if name in graph.weights and name not in parts:
            raise FormatError("E-PACKED-TWICE", path, f"the weight {name!r} is stored both quantized and unquantized")
    return unpacked if unpacked.weights else None


def unpack(graph: Graph) -> list[str]:
    """Replace the stored parts of quantized weights by weights that are dequantized on reading; return their names."""
    unpacked = dequantized(graph)
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
    _remove_configuration(graph)
    graph.event("W-PREQUANTIZED", f"{summary(unpacked)} dequantized on reading")
    return list(unpacked.weights)


def note_stored_quantized(graph: Graph) -> None:
    """Note on `graph`, whose weights are written as stored, that they are quantized."""
    stated = declaration(graph)
    if stated is not None and method(stated) in schemes() and (unpacked := dequantized(graph)) is not None:
        graph.event("W-PREQUANTIZED", f"{summary(unpacked)} left as stored; --dtype f16 dequantizes them")


def summary(unpacked: Unpacked) -> str:
    """The scheme, and the number of matrices stored in it."""
    count = len(unpacked.weights)
    return f"{unpacked.title}: {counted(count, 'matrix', 'matrices')}"


def _remove_configuration(graph: Graph) -> None:
    """Remove the quantization configuration from the attached files of the model."""
    config = configuration(graph)
    if config is None:
        return
    for level in (config, config.get(NESTED)):
        if isinstance(level, dict):
            for key in DECLARED:
                level.pop(key, None)
    graph.attachments = {name: storage for name, storage in graph.attachments.items() if name not in BESIDE}
    graph.attachments[CONFIG] = Held(json.dumps(config, indent=2).encode() + b"\n")
