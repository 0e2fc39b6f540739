"""GGUF files of denoising networks in the layout of ComfyUI-GGUF and stable-diffusion.cpp."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ....models.pipelines.diffusion.picture_gguf import ARCHITECTURE, PictureGguf
from ....models.schema.diffusion.module_names import renamed, swapped
from ....runtime.base.errors import FormatError, UnsupportedError
from ....runtime.contract.architecture import ORIGINAL
from ....runtime.contract.weight_binding import list_names, unbind
from ....runtime.ir.graph import Graph
from ....runtime.tensor.stored_tensor import StoredTensor
from ...load.bind import Model
from ...load.recognise import identified
from ...open.diffusion.picture_gguf import kinds, picture_names

SMALL = 1024
"""Elements up to which tensors are stored as f32, as ComfyUI-GGUF's converter does."""
RULE_NAMES = 100
"""Names in the pattern of one rule."""
SHOWN = 60
"""Characters of a value that a message shows."""


def picture_gguf(model: Model) -> PictureGguf | None:
    """The kind of file that a network is written to; None for other models."""
    own = (each for each in kinds(model.architecture.name) if each.architecture == model.architecture.name)
    return next((each for each in own if each.accepts(model.config)), None)


def to_picture_gguf(graph: Graph, model: Model, kind: PictureGguf) -> tuple[tuple[str, str], ...]:
    """Give a network the names and keys of such a file; rules for the dtypes of small tensors.

    Raises UnsupportedError for a network whose weights have no names there, and for one with settings that a reader
    does not find in the weights.
    """
    weights, lost = _named(graph.weights, model, kind)
    if lost:
        raise _inexpressible(graph, kind, f"it has no name for {list_names(lost)}")
    metadata = {ARCHITECTURE: kind.name, "general.type": "model"}
    if kind.settings is not None:
        _check_settings(graph, Graph(format="gguf", weights=weights, metadata=dict(metadata)), model, kind)
    graph.weights, graph.metadata, graph.attachments = weights, metadata, {}
    small = [name for name, tensor in weights.items() if len(tensor.shape) < 2 or tensor.count <= SMALL]
    groups = [small[start : start + RULE_NAMES] for start in range(0, len(small), RULE_NAMES)] or [[]]
    return tuple((rf"^(?:{'|'.join(map(re.escape, group))})\Z", "f32") for group in groups)


def _named(
    weights: Mapping[str, StoredTensor], model: Model, kind: PictureGguf
) -> tuple[dict[str, StoredTensor], list[str]]:
    """The weights by their authors' names, and the names of those that have none."""
    if kind.modules is None:
        return unbind(model.architecture, model.config, model.weights, ORIGINAL), model.nameless(ORIGINAL)
    try:
        modules = swapped(kind.modules(model.config))
    except ValueError as error:
        raise _inexpressible(model.source, kind, str(error)) from error
    named = {name: renamed(name, modules) for name in weights}
    lost = [name for name, original in named.items() if original is None]
    return {original: weights[name] for name, original in named.items() if original is not None}, lost


def _check_settings(graph: Graph, written: Graph, model: Model, kind: PictureGguf) -> None:
    """UnsupportedError where readers of the weights alone, without config.json, take the network for another one."""
    assert kind.settings is not None
    try:
        _, _, config = identified(picture_names(written))
    except FormatError as error:
        raise _inexpressible(graph, kind, "its weights do not imply its configuration") from error
    ours, theirs = kind.settings(model.config), kind.settings(config)
    differing = [key for key in ours if ours[key] != theirs.get(key)]
    if differing:
        said = "; ".join(f"{key} is {_text(ours, key)}, but files imply {_text(theirs, key)}" for key in differing)
        raise _inexpressible(graph, kind, said)


def _text(settings: Mapping[str, Any], key: str) -> str:
    return json.dumps(settings.get(key))[:SHOWN]


def _inexpressible(graph: Graph, kind: PictureGguf, why: str) -> UnsupportedError:
    path = graph.files[0] if graph.files else None
    what = f"GGUF files of the architecture {kind.name} cannot hold this network: {why}"
    return UnsupportedError("E-GGUF-SETTING", path, what, hint="Write safetensors or ONNX")
