"""Single files of models of several parts, such as Stable Diffusion's, opened as the folder that they stand for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ....models.pipelines.diffusion.single_file import FilePart, SingleFile
from ....models.schema.diffusion.module_names import renamed, swapped
from ....models.tokenizer.readers.locate import settings
from ....runtime.base.errors import FormatError
from ....runtime.base.units import counted
from ....runtime.ir.graph import Graph
from ....runtime.plugin.discovery import Plugins
from ....runtime.tensor.storage import Held
from ....runtime.tensor.stored_tensor import StoredTensor
from ..model_files import CLASS, MODEL_INDEX

SINGLE_FILES = Plugins("models.diffusion", "SINGLE_FILES")
CONFIG = "config.json"
SCHEDULER = "scheduler/scheduler_config.json"


def naming_of(graph: Graph) -> SingleFile | None:
    """Whose names the weights of a file have, None for other files. Families that do not mention how the names begin
    are not imported."""
    if graph.nodes or graph.parts:
        return None
    heads = {".".join(name.split(".", 2)[:2]) for name in graph.weights}
    mentioned = [f'"{head}."' for head in heads]
    families = [name for name in SINGLE_FILES.names() if SINGLE_FILES.contains(name, mentioned)]
    files = (each for name in families for each in SINGLE_FILES.load(name))
    return next((each for each in files if _fits(each, graph.weights)), None)


def _fits(naming: SingleFile, weights: Mapping[str, StoredTensor]) -> bool:
    return all(mark in weights for mark in naming.marks) and not any(name in weights for name in naming.lacks)


def split(graph: Graph) -> Graph:
    """The model in a single file as one of several parts, with the names and configurations of diffusers; other graphs
    as they are.

    Raises FormatError for a file that lacks weights of a part, or has others.
    """
    naming = naming_of(graph)
    if naming is None:
        return graph
    path = graph.files[0] if graph.files else None
    parts: dict[str, Graph] = {}
    used: set[str] = set()
    configs: dict[str, Mapping[str, Any]] = {}
    for name, part in naming.parts.items():
        try:
            parts[name], configs[name] = _part(graph, part, used)
        except (KeyError, IndexError, ValueError, StopIteration) as error:
            why = f"the weights of {name} are not those of a {naming.title} file"
            raise FormatError("E-SINGLE-FILE", path, why, hint="Is the file complete?") from error
    others = [each for each in graph.weights if each not in used and not each.startswith(naming.ignored)]
    scheduler = naming.scheduler(configs)
    index = {**naming.index, "scheduler": ["diffusers", scheduler["_class_name"]]}
    whole = Graph(format=graph.format, parts=parts, files=list(graph.files), metadata=dict(graph.metadata))
    for name, opened in parts.items():
        whole.weights |= {f"{name}/{key}": tensor for key, tensor in opened.weights.items()}
    whole.attachments = {MODEL_INDEX: _json(index), SCHEDULER: _json(scheduler)}
    whole.notes += graph.notes
    whole.event("W-SINGLE-FILE", f"{naming.title} file read as {', '.join(parts)}")
    if others:
        more = counted(len(others), "tensor", verb="is")
        whole.note("W-SINGLE-FILE", f"{more} of no part and left out, such as {others[0]!r}")
    return whole


def _part(graph: Graph, part: FilePart, used: set[str]) -> tuple[Graph, Mapping[str, Any]]:
    """A part as a model of its own, and its configuration; names of its weights in the file are added to `used`."""
    own = {name.removeprefix(part.prefix): name for name in graph.weights if name.startswith(part.prefix)}
    weights = {inner: graph.weights[name] for inner, name in own.items()}
    used.update(own.values())
    config = part.config(weights)
    if part.kept is not None:
        weights = {name: tensor for name, tensor in weights.items() if part.kept(name, config)}
    if part.modules is not None:
        modules = dict(part.modules(weights))
        named = {name: renamed(name, modules) or name for name in weights}
        weights = {ours: _squeezed(part, name, weights[name]) for name, ours in named.items()}
    opened = Graph(format=graph.format, weights=weights, files=list(graph.files))
    opened.attachments = {CONFIG: _json(config)}
    return opened, config


def joined(graph: Graph) -> Graph | None:
    """A model of several parts as one of the weights of a single file; None if its parts have no such names.

    The weights of parts without names in the file, such as a safety checker's, are left out and said.
    """
    kind = settings(graph, MODEL_INDEX).get(CLASS)
    naming = next((each for each in _namings() if each.index[CLASS] == kind and _stands(each, graph)), None)
    if naming is None:
        return None
    whole = Graph(format=graph.format, files=list(graph.files), metadata={})
    whole.notes += graph.notes
    for name, part in naming.parts.items():
        opened = graph.parts[name]
        modules = {} if part.stated is None else swapped(part.stated(settings(opened, CONFIG)))
        for ours, tensor in opened.weights.items():
            original = renamed(ours, modules) or ours
            whole.weights[part.prefix + original] = _expanded(part, original, tensor)
    whole.event("W-SINGLE-FILE", f"{', '.join(naming.parts)} written with the names of {naming.title} files")
    return whole


def alike(left: Graph, right: Graph) -> tuple[Graph, Graph]:
    """Two models with the same names, where one is a single file and the other a folder; others as they are."""
    for folder, file in ((left, right), (right, left)):
        if MODEL_INDEX in folder.attachments and folder.parts and naming_of(file) is not None:
            whole = joined(folder)
            same = (folder, split(file)) if whole is None else (whole, file)
            return same if folder is left else same[::-1]
    return left, right


def original_modules(graph: Graph) -> Callable[[str, str], list[str]]:
    """What looks up the original name of a module by its part and its name in diffusers: a list of one, or of none."""
    kind = settings(graph, MODEL_INDEX).get(CLASS)
    naming = next((each for each in _namings() if each.index[CLASS] == kind), None)
    tables = {
        name: swapped(part.stated(settings(graph.parts[name], CONFIG)))
        for name, part in (naming.parts.items() if naming else ())
        if part.stated is not None and name in graph.parts
    }

    def originals(part: str, module: str) -> list[str]:
        found = renamed(module, tables.get(part, {}))
        return [] if found is None else [found]

    return originals


def _namings() -> list[SingleFile]:
    return [each for several in SINGLE_FILES.all() for each in several]


def _stands(naming: SingleFile, graph: Graph) -> bool:
    """Whether the parts of a model are those of a naming, and are written so."""
    return naming.parts.keys() <= graph.parts.keys() and all(
        part.suits(settings(graph.parts[name], CONFIG)) for name, part in naming.parts.items()
    )


def _expanded(part: FilePart, name: str, tensor: StoredTensor) -> StoredTensor:
    """A matrix as a 1 x 1 convolution, where the file has one."""
    if len(tensor.shape) == 2 and any(text in f".{name}" for text in part.matrices):
        return StoredTensor(tensor.dtype, (*tensor.shape, 1, 1), tensor.storage)
    return tensor


def _squeezed(part: FilePart, name: str, tensor: StoredTensor) -> StoredTensor:
    """A 1 x 1 convolution as a matrix, where the part has one."""
    if len(tensor.shape) == 4 and any(text in f".{name}" for text in part.matrices):
        return StoredTensor(tensor.dtype, tensor.shape[:2], tensor.storage)
    return tensor


def _json(value: Any) -> Held:
    return Held(json.dumps(value, indent=2).encode())
