"""Files in names and keys that architectures know: legacy formats completed, multimodal checkpoints reduced to text."""

from __future__ import annotations

from ...runtime.ir.graph import Graph
from . import legacy_llama, whisper_names
from .text_part import outer_names, text_part

FAMILIES = (legacy_llama, whisper_names)
"""Modules that know files of one family."""


def modern(graph: Graph) -> Graph:
    """A graph of the same storage whose names and configuration architectures know; `graph` itself where it has them
    already."""
    for family in FAMILIES:
        newer = family.modern(graph)
        if newer is not graph:
            return newer
    return text_part(graph)


def origins(graph: Graph) -> dict[str, str]:
    """What the file calls each weight that `modern` renames."""
    family = next((family for family in FAMILIES if family.modern(graph) is not graph), None)
    return outer_names(graph.weights) if family is None else family.origins(graph)
