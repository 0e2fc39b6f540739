"""GGUF files of denoising networks, of ComfyUI-GGUF and stable-diffusion.cpp, by names that families know."""

from __future__ import annotations

import dataclasses
import json
import math

from ....models.pipelines.diffusion.picture_gguf import ARCHITECTURE, SHAPE, PictureGguf
from ....models.schema.diffusion.module_names import renamed
from ....runtime.base.errors import FormatError
from ....runtime.ir.graph import Graph, Meta
from ....runtime.plugin.discovery import Plugins
from ....runtime.tensor.storage import Held
from ....runtime.tensor.stored_tensor import StoredTensor
from .single_file import naming_of

KINDS = Plugins("models.diffusion", "PICTURE_GGUF")
CONFIG = "config.json"
MOST_DIMS = 8
LONGEST_NAME = 127
"""Maximum name length in stable-diffusion.cpp's ggml; ComfyUI-GGUF has no limit."""


def kinds(word: str) -> list[PictureGguf]:
    """The kinds of files of the families that mention a word, such as the name of an architecture; other families are
    not imported."""
    families = [name for name in KINDS.names() if KINDS.contains(name, [f'"{word}"'])]
    return [each for name in families for each in KINDS.load(name)]


def picture_names(graph: Graph) -> Graph:
    """The network of such a file by names that its architecture knows, with a config.json where the names are not
    enough; `graph` itself for other files, and for those that hold a whole pipeline."""
    kind = _kind(graph)
    if kind is None:
        return graph
    weights = {name: _shaped(graph, name, tensor) for name, tensor in graph.weights.items()}
    metadata = {
        key: value for key, value in graph.metadata.items() if key != ARCHITECTURE and not key.startswith(SHAPE)
    }
    newer = dataclasses.replace(graph, weights=weights, metadata=metadata, attachments=dict(graph.attachments))
    if kind.part is None:
        return newer
    try:
        modules = dict(kind.part.modules(weights)) if kind.part.modules is not None else {}
        config = None if CONFIG in graph.attachments else kind.part.config(weights)
    except (KeyError, IndexError, ValueError, StopIteration) as error:
        why = f"the weights are not those of the architecture {kind.name}"
        raise FormatError("E-GGUF-PICTURE", _path(graph), why, hint="Is the file complete?") from error
    newer.weights = {renamed(name, modules) or name: tensor for name, tensor in weights.items()}
    if config is not None:
        newer.attachments[CONFIG] = Held(json.dumps(config, indent=2).encode())
    return newer


def origins(graph: Graph) -> dict[str, str]:
    """Canonical name -> name in the file."""
    kind = _kind(graph)
    if kind is None or kind.part is None or kind.part.modules is None:
        return {}
    modules = dict(kind.part.modules(graph.weights))
    return {renamed(name, modules) or name: name for name in graph.weights}


def _kind(graph: Graph) -> PictureGguf | None:
    word = graph.metadata.get(ARCHITECTURE)
    if graph.format != "gguf" or graph.nodes or graph.parts or not isinstance(word, str):
        return None
    found = next((each for each in kinds(word) if each.name == word), None)
    return None if found is None or naming_of(graph) is not None else found


def longest_name(graph: Graph) -> int | None:
    """Bytes of a name that readers of these files allow; None for other graphs."""
    word = graph.metadata.get(ARCHITECTURE)
    return LONGEST_NAME if isinstance(word, str) and any(each.name == word for each in kinds(word)) else None


def _shaped(graph: Graph, name: str, tensor: StoredTensor) -> StoredTensor:
    """A tensor in the shape that the file states; quantized rows that do not fit it are computed when they are read."""
    stated = graph.metadata.get(f"{SHAPE}{name}")
    if stated is None:
        return tensor
    shape = _lengths(graph, name, stated)
    if math.prod(shape) != tensor.count:
        why = f"the shape of {name!r} in {SHAPE}* does not fit the tensor"
        raise FormatError("E-GGUF-SHAPE", _path(graph), why, expected=list(tensor.shape), found=list(shape))
    if tensor.qtype is not None and shape[-1:] != tensor.shape[-1:]:
        tensor = tensor.dequantize("f32")
    return StoredTensor(tensor.dtype, shape, tensor.storage)


def _lengths(graph: Graph, name: str, stated: Meta) -> tuple[int, ...]:
    listed = getattr(stated, "tolist", lambda: stated)()
    whole = isinstance(listed, list | tuple) and all(type(length) is int and 0 < length < 2**40 for length in listed)
    if not whole or not 0 < len(listed) <= MOST_DIMS:
        raise FormatError("E-GGUF-SHAPE", _path(graph), f"{SHAPE}{name} is not a list of lengths")
    return tuple(listed)


def _path(graph: Graph) -> str | None:
    return graph.files[0] if graph.files else None
