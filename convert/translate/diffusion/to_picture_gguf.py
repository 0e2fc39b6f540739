"""GGUF files of denoising networks in the layout of ComfyUI-GGUF and stable-diffusion.cpp."""

from __future__ import annotations

import re

from ....models.pipelines.diffusion.picture_gguf import ARCHITECTURE, PictureGguf
from ....models.schema.diffusion.module_names import renamed, swapped
from ....models.tokenizer.readers.locate import settings
from ....runtime.contract.architecture import ORIGINAL
from ....runtime.contract.weight_binding import unbind
from ....runtime.ir.graph import Graph
from ...load.bind import Model
from ...open.diffusion.picture_gguf import kinds
from ...open.open_model import CONFIG

SMALL = 1024
"""Elements up to which tensors are stored as f32, as ComfyUI-GGUF's converter does."""
RULE_NAMES = 100
"""Names in the pattern of one rule."""


def picture_gguf(model: Model) -> PictureGguf | None:
    """The kind of file that a network is written to; None for other models."""
    own = (each for each in kinds() if each.architecture == model.architecture.name)
    return next((each for each in own if each.accepts(model.config)), None)


def to_picture_gguf(graph: Graph, model: Model, kind: PictureGguf) -> tuple[tuple[str, str], ...]:
    """Give a network the names and keys of such a file; rules for the dtypes of small tensors."""
    if kind.part is None or kind.part.stated is None:
        graph.weights = unbind(model.architecture, model.config, model.weights, ORIGINAL)
    else:
        modules = swapped(kind.part.stated(settings(graph, CONFIG)))
        graph.weights = {renamed(name, modules) or name: tensor for name, tensor in graph.weights.items()}
    graph.metadata, graph.attachments = {ARCHITECTURE: kind.name, "general.type": "model"}, {}
    small = [name for name, tensor in graph.weights.items() if len(tensor.shape) < 2 or tensor.count <= SMALL]
    groups = [small[start : start + RULE_NAMES] for start in range(0, len(small), RULE_NAMES)] or [[]]
    return tuple((rf"^(?:{'|'.join(map(re.escape, group))})\Z", "f32") for group in groups)
