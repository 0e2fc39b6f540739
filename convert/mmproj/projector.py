"""The family that llama.cpp's file of an encoder and a projector belongs to, by its kind of projector."""

from __future__ import annotations

from typing import Any

from ...runtime.base.errors import UnsupportedError
from ...runtime.contract.architecture import Architecture
from ...runtime.contract.composition import whole
from ...runtime.contract.hyperparameter import StatedValues, shown
from ...runtime.contract.mmproj import CLIP, PROJECTOR, Mmproj
from ...runtime.ir.graph import Graph
from ...runtime.plugin import discovery

ARCHITECTURE = "general.architecture"
OF_PARTS = (PROJECTOR, "vision.projector_type", "audio.projector_type")
"""Keys of the kind of projector; files of several encoders have one for each."""
OLDER = "has_llava_projector"
"""A switch of older files, which leave out the kind."""


def stated_of(graph: Graph) -> StatedValues:
    """The hyper-parameters of an mmproj file, without ``clip.``."""
    return StatedValues(graph.metadata, f"{CLIP}.")


def projector_kind(graph: Graph) -> Any:
    """The kind of projector of such a file; None if it states none."""
    said = stated_of(graph)
    return next((said[key] for key in OF_PARTS if said.get(key)), "mlp" if said.get(OLDER) else None)


def family_of(graph: Graph) -> tuple[Architecture, Mmproj]:
    """The family of such a file, and how its files are made up. UnsupportedError for an unknown kind of projector."""
    kind = projector_kind(graph)
    modules = discovery.ARCHITECTURES.mentioning(f'"{kind}"') if isinstance(kind, str) else ()
    families = [
        (each, mmproj)
        for module in modules
        for each in discovery.ARCHITECTURES.load(module)
        for mmproj in each.mmproj
        if mmproj.projector == kind and mmproj.reads and (not mmproj.marker or mmproj.marker in graph.weights)
    ]
    if families:
        architecture, mmproj = max(families, key=lambda family: bool(family[1].marker))
        return whole(architecture), mmproj
    path = graph.files[0] if graph.files else None
    why = f"the kind of projector {shown(kind)} is not supported" if kind else "clip.projector_type is missing"
    raise UnsupportedError("E-MMPROJ-KIND", path, why, hint=f"Supported are: {', '.join(_known())}")


def _known() -> list[str]:
    families = (each for name in discovery.ARCHITECTURES.mentioning("mmproj=") for each in _load(name))
    return sorted({mmproj.projector for each in families for mmproj in each.mmproj})


def _load(name: str) -> tuple[Architecture, ...]:
    found: tuple[Architecture, ...] = discovery.ARCHITECTURES.load(name)
    return found
