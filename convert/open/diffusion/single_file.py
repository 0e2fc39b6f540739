"""Single files of models of several parts, such as Stable Diffusion's, opened as the folder that they stand for."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ....models.pipelines.diffusion.single_file import FilePart, SingleFile
from ....models.schema.clip.vocabulary import VOCABULARY, tokenizer_files
from ....models.schema.diffusion.module_names import renamed, swapped
from ....models.tokenizer.readers.locate import settings
from ....runtime.base.errors import FormatError, UnsupportedError
from ....runtime.base.units import counted
from ....runtime.contract.architecture import HF, Architecture, Config, weight_slots
from ....runtime.contract.weight_binding import (
    bind,
    config_from,
    config_keys,
    find_architecture,
    implied,
    list_names,
    unbind,
)
from ....runtime.ir.graph import Graph
from ....runtime.plugin.discovery import Plugins
from ....runtime.tensor.storage import Held, Storage
from ....runtime.tensor.stored_tensor import StoredTensor
from ..model_files import CLASS, MODEL_INDEX, folder_files

SINGLE_FILES = Plugins("models.diffusion", "SINGLE_FILES")
CONFIG = "config.json"
SCHEDULER, PREDICTION = "scheduler/scheduler_config.json", "prediction_type"
TOKENIZERS = (["transformers", "CLIPTokenizer"], ["transformers", "T5TokenizerFast"])
"""Entries of a model_index.json: of CLIP's tokenizers and of the others."""
SHOWN = 60
"""Characters of a value that a message shows."""


def naming_of(graph: Graph) -> SingleFile | None:
    """The naming of the weights of a file, None for other files. Families that do not mention how the names begin are
    not imported."""
    if graph.nodes or graph.parts:
        return None
    heads = {".".join(name.split(".", 2)[:2]) for name in graph.weights}
    mentioned = [f'"{head}."' for head in heads]
    families = [name for name in SINGLE_FILES.names() if SINGLE_FILES.contains(name, mentioned)]
    files = (each for name in families for each in SINGLE_FILES.load(name))
    return next((file for file in files if _fits(file, graph.weights)), None)


def _fits(naming: SingleFile, weights: Mapping[str, StoredTensor]) -> bool:
    return all(mark in weights for mark in naming.marks)


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
        if part.optional and not any(weight.startswith(part.prefix) for weight in graph.weights):
            continue
        try:
            parts[name], configs[name] = _part(graph, part, used)
        except (KeyError, IndexError, ValueError, StopIteration) as error:
            why = f"the weights of {name} are not those of a {naming.title} file"
            raise FormatError("E-SINGLE-FILE", path, why, hint="Is the file complete?") from error
    others = [weight for weight in graph.weights if weight not in used and not weight.startswith(naming.ignored)]
    scheduler = naming.scheduler(configs)
    classes = {**{name: _class_of(config) for name, config in configs.items()}, "scheduler": _class_of(scheduler)}
    tokenizers = {name: TOKENIZERS[pad is None] for name, pad in naming.tokenizers.items() if _encoder(name) in configs}
    whole = Graph(format=graph.format, parts=parts, files=list(graph.files), metadata=dict(graph.metadata))
    for name, opened in parts.items():
        whole.weights |= {f"{name}/{key}": tensor for key, tensor in opened.weights.items()}
    whole.attachments = {
        MODEL_INDEX: _json({CLASS: naming.kind, **classes, **tokenizers}),
        SCHEDULER: _json(scheduler),
        **_tokenizer_files(naming, configs, path),
    }
    whole.notes += graph.notes
    whole.event("W-SINGLE-FILE", f"{naming.title} file read as {', '.join(parts)}")
    if others:
        more = counted(len(others), "tensor", verb="is")
        whole.note("W-SINGLE-FILE", f"{more} of no part and left out, such as {others[0]!r}")
    return whole


def _class_of(config: Mapping[str, Any]) -> list[str]:
    """The library and the class that a model_index.json names for a configuration."""
    return ["diffusers", config[CLASS]] if CLASS in config else ["transformers", config["architectures"][0]]


def _encoder(tokenizer: str) -> str:
    """The folder of the text encoder of a tokenizer's folder."""
    return tokenizer.replace("tokenizer", "text_encoder")


def _tokenizer_files(
    naming: SingleFile, configs: Mapping[str, Mapping[str, Any]], path: str | None
) -> dict[str, Storage]:
    """The files of the tokenizers: those of a folder next to the file, otherwise CLIP's, where the text encoder has its
    vocabulary."""
    found: dict[str, Storage] = {}
    for name, pad in naming.tokenizers.items():
        if _encoder(name) not in configs:
            continue
        beside = {} if path is None else folder_files(Path(path).parent, name)
        if beside:
            found |= beside
        elif pad is not None and configs[_encoder(name)]["vocab_size"] == VOCABULARY:
            found |= {f"{name}/{file}": Held(text.encode()) for file, text in tokenizer_files(pad).items()}
    return found


def _part(graph: Graph, part: FilePart, used: set[str]) -> tuple[Graph, Mapping[str, Any]]:
    """A part as a model of its own, and its configuration; names of its weights in the file are added to `used`."""
    own = {name.removeprefix(part.prefix): name for name in graph.weights if name.startswith(part.prefix)}
    weights: Mapping[str, StoredTensor] = {inner: graph.weights[name] for inner, name in own.items()}
    used.update(own.values())
    if part.completed is not None:
        weights = part.completed(weights)
    config = part.config(weights)
    if part.kept is not None:
        weights = {name: tensor for name, tensor in weights.items() if part.kept(name, config)}
    opened = Graph(format=graph.format, weights=dict(weights), files=list(graph.files))
    opened.attachments = {CONFIG: _json(config)}
    if part.names is not None:
        architecture, bound, opened.weights = _rebound(opened, HF)
        config = config if "model_type" in config else {**config_keys(architecture, HF, bound), **config}
        opened.attachments = {CONFIG: _json(config)}
    elif part.modules is not None:
        modules = dict(part.modules(weights))
        named = {name: renamed(name, modules) or name for name in weights}
        opened.weights = {ours: _squeezed(part, name, weights[name]) for name, ours in named.items()}
    return opened, config


def _identified(graph: Graph) -> tuple[Architecture, str, Config]:
    """The architecture of a part, whose names its weights have, and its hyper-parameters; FormatError for invalid
    ones."""
    said, path = settings(graph, CONFIG), graph.files[0] if graph.files else None
    names, source = (None if "model_type" in said else implied(said, graph)) or (HF, said)
    architecture = find_architecture(names, source, path)
    return architecture, names, config_from(architecture, names, source, path)


def _rebound(graph: Graph, wanted: str) -> tuple[Architecture, Config, dict[str, StoredTensor]]:
    """The architecture of a part, its hyper-parameters, and its weights by the names of another convention. ValueError
    for weights that have no name there."""
    architecture, names, config = _identified(graph)
    path = graph.files[0] if graph.files else None
    bound = bind(architecture, config, graph.weights, names, path)
    lost = [ours for row, _, ours in weight_slots(architecture, config) if ours in bound and not row.stored(wanted)]
    if lost:
        raise ValueError(f"they have no name for {list_names(lost)}")
    return architecture, config, unbind(architecture, config, bound, wanted)


def joined(graph: Graph) -> Graph | None:
    """A model of several parts as one of the weights of a single file; None if its parts have no such names.

    The weights of parts without names in the file, such as a safety checker's, are left out and said.

    Raises:
        FormatError: invalid hyper-parameters of a part.
        UnsupportedError: a part with settings that a reader of the file does not find in the weights.
    """
    kind = settings(graph, MODEL_INDEX).get(CLASS)
    naming = next((each for each in _namings() if each.kind == kind and _stands(each, graph)), None)
    if naming is None:
        return None
    whole = Graph(format=graph.format, files=list(graph.files), metadata={})
    whole.notes += graph.notes
    written = {name: part for name, part in naming.parts.items() if name in graph.parts}
    for name, part in written.items():
        opened = graph.parts[name]
        _, _, config = _identified(opened)
        try:
            weights = _original(opened, part, config)
            lost = lost_settings(part, config, weights)
        except ValueError as error:
            lost = str(error)
        if lost:
            why = f"{naming.title} files cannot hold this {name}: {lost}"
            path = opened.files[0] if opened.files else None
            raise UnsupportedError("E-SINGLE-FILE", path, why, hint="Write a directory: -o DIR/ --to safetensors")
        whole.weights |= {part.prefix + original: tensor for original, tensor in weights.items()}
    whole.event("W-SINGLE-FILE", f"{', '.join(written)} written with the names of {naming.title} files")
    said, read = (settings(each, SCHEDULER).get(PREDICTION, "epsilon") for each in (graph, split(whole)))
    if said != read:
        whole.note("W-SINGLE-FILE", f"the file does not say that the model predicts {said}; readers take {read}")
    return whole


def _original(graph: Graph, part: FilePart, config: Config) -> dict[str, StoredTensor]:
    """The weights of a part by their names in the file, without the prefix."""
    if part.names is not None:
        return _rebound(graph, part.names)[2]
    assert part.stated is not None
    modules = swapped(part.stated(config))
    named = {ours: renamed(ours, modules) for ours in graph.weights}
    lost = [ours for ours, original in named.items() if original is None]
    if lost:
        raise ValueError(f"they have no name for {list_names(lost)}")
    return {name: _expanded(part, name, graph.weights[ours]) for ours, name in named.items() if name is not None}


def lost_settings(part: FilePart, config: Config, weights: Mapping[str, StoredTensor]) -> str:
    """Hyper-parameters that readers of the weights alone, without config.json, take to be otherwise; empty for a part
    that they read as it is."""
    if part.settings is None:
        return ""
    try:
        read = Graph(weights=dict(weights), attachments={CONFIG: _json(part.config(weights))})
        _, _, implied_config = _identified(read)
    except (FormatError, KeyError, IndexError, StopIteration):
        return "its weights do not imply its configuration"
    ours, theirs = part.settings(config), part.settings(implied_config)
    differing = [key for key in ours if ours[key] != theirs.get(key)]
    return "; ".join(f"{key} is {_shown(ours[key])}, but files imply {_shown(theirs.get(key))}" for key in differing)


def _shown(value: Any) -> str:
    return json.dumps(value)[:SHOWN]


def alike(left: Graph, right: Graph) -> tuple[Graph, Graph]:
    """Two models with the same names, where one is a single file and the other a folder; others as they are."""
    sides = (left, right), (right, left)
    if not any(MODEL_INDEX in one.attachments and one.parts and naming_of(other) is not None for one, other in sides):
        return left, right
    return _normalized(left), _normalized(right)


def _normalized(graph: Graph) -> Graph:
    """A model with the names that a folder has which is made of its single file."""
    try:
        return split(joined(graph) or graph)
    except UnsupportedError:  # a folder that no file can hold keeps its names
        return graph


def original_modules(graph: Graph) -> Callable[[str, str], list[str]]:
    """A lookup of the original names of modules by part and name in diffusers: a list of one, or of none."""
    kind = settings(graph, MODEL_INDEX).get(CLASS)
    naming = next((each for each in _namings() if each.kind == kind), None)
    tables: dict[str, Mapping[str, str]] = {}
    for name, part in naming.parts.items() if naming else ():
        if part.stated is not None and name in graph.parts:
            with contextlib.suppress(ValueError):  # a part without such names
                tables[name] = swapped(part.stated(_identified(graph.parts[name])[2]))

    def originals(part: str, module: str) -> list[str]:
        found = renamed(module, tables.get(part, {}))
        return [] if found is None else [found]

    return originals


def _namings() -> list[SingleFile]:
    return [each for several in SINGLE_FILES.all() for each in several]


def _stands(naming: SingleFile, graph: Graph) -> bool:
    """Whether the parts of a model are those of a naming, and are written so."""
    return all(
        part.suits(settings(graph.parts[name], CONFIG)) if name in graph.parts else part.optional
        for name, part in naming.parts.items()
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
