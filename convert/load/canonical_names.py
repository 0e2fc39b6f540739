"""Canonical names: the names and keys that architectures know. Legacy formats are completed, wrappers of training left
out, multimodal checkpoints reduced to text."""

from __future__ import annotations

import dataclasses

from ...runtime.ir.graph import Graph
from ..mmproj.join import joined
from ..open.diffusion import picture_gguf
from . import legacy_llama, whisper_names
from .text_part import outer_names, text_part
from .wrapper_names import plain_names, unwrapped

FAMILIES = (
    (legacy_llama.gguf_names, legacy_llama.origins),
    (whisper_names.transformers_names, whisper_names.origins),
    (picture_gguf.picture_names, picture_gguf.origins),
)
"""For files of one family: what renames them, and the names that their weights had."""


def canonical_names(graph: Graph, *, text_only: bool = False) -> Graph:
    """A graph of the same storage whose names and configuration architectures know; `graph` itself where it has them
    already. A language model with its `Graph.mmproj` becomes the whole model. `text_only`: as of `text_part`."""
    if graph.mmproj is not None:
        if not text_only:
            return joined(graph)
        alone = dataclasses.replace(graph, mmproj=None)
        newer = canonical_names(alone, text_only=True)
        return graph if newer is alone else newer
    plain = unwrapped(graph)
    for renamed, _ in FAMILIES:
        newer = renamed(plain)
        if newer is not plain:
            return newer
    return text_part(plain, text_only=text_only)


def origins(graph: Graph) -> dict[str, str]:
    """Canonical name -> name in the file, of weights that `canonical_names` renames."""
    plain = unwrapped(graph)
    own = next((own for renamed, own in FAMILIES if renamed(plain) is not plain), None)
    found = outer_names(plain.weights) if own is None else own(plain)
    if plain is graph:
        return found
    wrapped = {name: given for given, name in plain_names(graph).items()}
    return wrapped | {name: wrapped.get(given, given) for name, given in found.items()}
