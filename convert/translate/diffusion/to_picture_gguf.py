"""GGUF files of denoising networks in the layout of ComfyUI-GGUF and stable-diffusion.cpp."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ....models.pipelines.diffusion.picture_gguf import ARCHITECTURE, PictureGguf
from ....models.schema.diffusion.module_names import renamed, swapped
from ....runtime.base.errors import FormatError, UnsupportedError
from ....runtime.contract.architecture import ORIGINAL
from ....runtime.contract.weight_binding import list_names, unbind
from ....runtime.ir.graph import Graph
from ....runtime.tensor.stored_tensor import StoredTensor
from ...load.bind import Model, bind_model
from ...load.canonical_names import canonical_names
from ...open.diffusion.picture_gguf import kinds
from ...open.diffusion.single_file import lost_settings, split

SMALL = 1024
"""Elements up to which tensors are stored as f32, as ComfyUI-GGUF's converter does."""
RULE_NAMES = 100
"""Names in the pattern of one rule."""


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
    if kind.part is not None and (why := lost_settings(kind.part, model.config, weights)):
        raise _inexpressible(graph, kind, why)
    if kind.part is None and (why := _implied_otherwise(model, weights)):
        graph.note("W-GGUF-SETTING", f"{kind.name} files need a config.json next to them: {why}")
    graph.weights = weights
    return _described(graph, kind)


def _implied_otherwise(model: Model, weights: Mapping[str, StoredTensor]) -> str:
    """Hyper-parameters that readers of the weights alone take to be otherwise; empty if there is no such one."""
    try:
        implied = bind_model(Graph(weights=dict(weights))).config.values
    except FormatError:
        return "the weights do not imply the sizes of heads and axes"
    ours = {row.name: model.config.values.get(row.name) for row in model.architecture.keys}
    differing = {name: value for name, value in ours.items() if value != implied.get(name)}
    return "; ".join(f"{name} is {value}, but files imply {implied.get(name)}" for name, value in differing.items())


def to_pipeline_gguf(graph: Graph) -> tuple[tuple[str, str], ...]:
    """Give a single file of a whole pipeline, whose names stay, the keys of such a file; rules for the dtypes of small
    tensors.

    Raises UnsupportedError for a pipeline whose denoising network has no such kind.
    """
    opened = split(graph).parts
    bound = (bind_model(canonical_names(part)) for part in opened.values())
    kind = next((kind for model in bound if (kind := picture_gguf(model)) is not None), None)
    if kind is None:
        path = graph.files[0] if graph.files else None
        why = f"GGUF has no architecture for the networks of this file: {', '.join(opened)}"
        raise UnsupportedError("E-GGUF-SETTING", path, why, hint="Write safetensors or ONNX")
    return _described(graph, kind)


def _described(graph: Graph, kind: PictureGguf) -> tuple[tuple[str, str], ...]:
    """Give a graph the keys of a kind of file alone; rules that store its small tensors as f32."""
    graph.attachments, graph.metadata = {}, {ARCHITECTURE: kind.name, "general.type": "model"}
    small = [name for name, tensor in graph.weights.items() if len(tensor.shape) < 2 or tensor.count <= SMALL]
    groups = [small[start : start + RULE_NAMES] for start in range(0, len(small), RULE_NAMES)] or [[]]
    return tuple((rf"^(?:{'|'.join(map(re.escape, group))})\Z", "f32") for group in groups)


def _named(
    weights: Mapping[str, StoredTensor], model: Model, kind: PictureGguf
) -> tuple[dict[str, StoredTensor], list[str]]:
    """The weights by their authors' names, and the names of those that have none."""
    if kind.part is None or kind.part.stated is None:
        return unbind(model.architecture, model.config, model.weights, ORIGINAL), model.nameless(ORIGINAL)
    try:
        modules = swapped(kind.part.stated(model.config))
    except ValueError as error:
        raise _inexpressible(model.source, kind, str(error)) from error
    named = {name: renamed(name, modules) for name in weights}
    lost = [name for name, original in named.items() if original is None]
    return {original: weights[name] for name, original in named.items() if original is not None}, lost


def _inexpressible(graph: Graph, kind: PictureGguf, why: str) -> UnsupportedError:
    path = graph.files[0] if graph.files else None
    what = f"GGUF files of the architecture {kind.name} cannot hold this network: {why}"
    return UnsupportedError("E-GGUF-SETTING", path, what, hint="Write safetensors or ONNX")
