"""Stating: the architecture that a model's metadata or config.json names."""

from __future__ import annotations

from ...runtime.base.errors import Error
from ...runtime.contract.architecture import GGUF, HF
from ...runtime.contract.weight_binding import find_architecture
from ...runtime.ir.graph import Graph
from ..open.prequantized import configuration

KEYS = {GGUF: "general.architecture", HF: "model_type"}


def architecture_name(graph: Graph) -> str | None:
    """The name of a model's architecture: ours where it is known, else what the file says; None where it says
    nothing."""
    try:
        said = {GGUF: graph.metadata, HF: configuration(graph) or {}}
    except Error:
        said = {GGUF: graph.metadata}
    for names, source in said.items():
        kind = source.get(KEYS[names])
        if isinstance(kind, str) and kind:
            try:
                return find_architecture(names, source).name
            except Error:
                return kind
    return None
