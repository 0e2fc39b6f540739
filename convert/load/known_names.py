"""Files in names and keys that architectures know: legacy formats completed, wrappers of training left out, multimodal
checkpoints reduced to text."""

from __future__ import annotations

from ...runtime.ir.graph import Graph
from . import legacy_llama, whisper_names
from .text_part import outer_names, text_part
from .wrapper_names import plain_names, unwrapped

FAMILIES = (legacy_llama, whisper_names)
"""Modules that know files of one family."""


def modern(graph: Graph) -> Graph:
    """A graph of the same storage whose names and configuration architectures know; `graph` itself where it has them
    already."""
    plain = unwrapped(graph)
    for family in FAMILIES:
        newer = family.modern(plain)
        if newer is not plain:
            return newer
    return text_part(plain)


def origins(graph: Graph) -> dict[str, str]:
    """Canonical name -> name in the file, of weights that `modern` renames."""
    plain = unwrapped(graph)
    family = next((family for family in FAMILIES if family.modern(plain) is not plain), None)
    found = outer_names(plain.weights) if family is None else family.origins(plain)
    if plain is graph:
        return found
    wrapped = {name: given for given, name in plain_names(graph).items()}
    return wrapped | {name: wrapped.get(given, given) for name, given in found.items()}
