"""Recognise the architecture of a checkpoint, by what its metadata, config.json or weights say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...runtime.base.errors import UnsupportedError
from ...runtime.contract.architecture import GGUF, HF, Architecture, Config
from ...runtime.contract.hyperparameter import StatedValues
from ...runtime.contract.part_binding import bound_to_file
from ...runtime.contract.weight_binding import config_from, find_architecture, implied, key_prefix
from ...runtime.ir.graph import Graph
from ..open.prequantized import configuration

ARCHITECTURE = "general.architecture"
NODES = "onnx"
"""The format of files whose weights belong to nodes."""


def described(graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
    """Naming convention of a file, and its statement of the architecture: GGUF metadata, the config.json next to it, or
    what weights and metadata imply.

    None where nothing says it, and for the weights of a graph of nodes, whose names are its own.
    """
    if graph.format == NODES:
        return None
    said = stated(graph)
    if said is None or (said[0] == HF and said[1].get("model_type") is None):
        return implied(said[1] if said else {}, graph) or said
    return said


def stated(graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
    """Naming convention of a file, and its own statement of the architecture: GGUF metadata, or the config.json next to
    it."""
    if ARCHITECTURE in graph.metadata:
        return GGUF, graph.metadata
    said = configuration(graph)
    return None if said is None else (HF, said)


def identified(graph: Graph) -> tuple[Architecture, str, Config]:
    """The architecture, whose names the file has, and the configuration; raises as `bind_model` does, but looks at no
    weight."""
    path = graph.files[0] if graph.files else None
    found = described(graph)
    if found is None:
        why = "nothing says which architecture the weights are of"
        hint = "Open the model's directory with its config.json, or a GGUF file"
        if any(".lora_A." in name for name in graph.weights):
            folder = os.path.dirname(path) if path else "ADAPTER"
            why = "these are the weights of a LoRA adapter, without those of the model that it changes"
            hint = f"Merge it into its model first: candle-convert MODEL OUT --lora {folder or '.'}"
        raise UnsupportedError("E-ARCH-NONE", path, why, hint=hint)
    names, source = found
    architecture = find_architecture(names, source, path)
    stated = StatedValues(source, key_prefix(names, source))
    architecture = bound_to_file(architecture, names, stated, graph.weights, path)
    return architecture, names, config_from(architecture, names, source, path)
