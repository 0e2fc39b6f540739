"""Folders of models whose parts have a file or a folder each, called after the parts.

A family lists such models as `FOLDER_MODELS`, and mentions the names of the parts in quotes. A model_index.json of
diffusers names the class, which is one of the family's `model_types`, and further folders, such as the tokenizer's.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...models.tokenizer.readers.locate import settings
from ...runtime.base.errors import Error, FormatError
from ...runtime.base.untrusted.json import parse
from ...runtime.contract.architecture import COMPONENT, HF, Architecture
from ...runtime.contract.weight_binding import find_architecture, implied
from ...runtime.ir.graph import Graph
from ...runtime.plugin.discovery import Plugins
from ...runtime.tensor.file import Source, contained
from ...runtime.tensor.storage import Region, Storage
from . import model_directory

FOLDER_MODELS = Plugins("models", "FOLDER_MODELS")
SUFFIXES = (".safetensors", ".gguf", ".pt", ".pth", ".th", ".bin")
"""Suffixes of files of models, the preferred one first."""
MODEL_INDEX, CLASS = "model_index.json", "_class_name"
"""The file of diffusers that lists the folders of a pipeline, and its key for the pipeline's class."""
OPTIMUM = "ORT"
"""How the classes of Optimum's pipelines begin, which are called as those of diffusers otherwise."""
NETWORK = "model.onnx"
"""The file of a component's graph in a folder that Optimum exports."""
COMPONENTS = (".json", ".txt", ".model", ".spm", ".jinja")
"""Suffixes of files in folders without weights, such as ``scheduler`` and ``tokenizer``."""
MOST_COMPONENTS = 64
_STEM = re.compile(r"[^.-]+")


def models_of(folder: Path) -> dict[str, Path] | None:
    """The files and folders of a model made of several, by the names of its models; None for other folders, and for
    those with further files of weights, unless a model_index.json says what the model is. FormatError for a folder that
    lacks one of the models."""
    names, weights = model_directory.listed(folder), model_directory.weights(folder)
    lacking: list[str] = []
    kind = index_of(folder).get(CLASS) if MODEL_INDEX in names else None
    for each in _candidates(names, kind):
        found = {model: path for model in each.parts if (path := _path_of(model, folder, names)) is not None}
        files = {path.name for path in found.values()}
        others = [name for name in weights if name not in files and _named(name) not in found]
        if others and kind is None:
            continue
        missing = [model for model, part in each.parts.items() if model not in found and not part.optional]
        if not missing:
            return found
        if len(found) > 1 and len(weights) != 1:
            lacking = lacking or missing
    if lacking:
        hint = "Put a file of weights or a folder of that name beside the others"
        raise FormatError("E-DIR-PART", folder, f"the model is without its {', '.join(lacking)}", hint=hint)
    return None


def component_folders(model: str, folder: Path) -> tuple[dict[str, Path], list[str]]:
    """The folders of the graphs that Optimum exports of a component, such as ``vae_encoder`` and ``vae_decoder``, by
    what follows the component's name; empty for a component with a folder of its own name. And the names of folders
    that are called alike, of which its architecture says nothing, such as ``vae_decoder_fp16``."""
    names = [] if (folder / model).is_dir() else model_directory.listed(folder)
    alike = [name for name in names if name.startswith(f"{model}_") and (folder / name / NETWORK).is_file()]
    found = {name.removeprefix(model): folder / name for name in alike}
    ends = next((ends for path in found.values() if (ends := _declared(path)) is not None), found.keys())
    kept = {end: path for end, path in found.items() if end in ends}
    return kept, [path.name for end, path in found.items() if end not in ends]


def _declared(folder: Path) -> set[str] | None:
    """Suffixes of a component's name in the folders of its graphs, as the architecture in a folder's config.json
    declares them; None if that is not known."""
    if not (folder / model_directory.CONFIG).is_file():
        return None
    config = _parsed(Source(contained(folder, model_directory.CONFIG, str(folder))))
    try:
        component = find_architecture(*(implied(config, Graph()) or (HF, config))).component
    except Error:
        return None
    return None if component is None else {name.removeprefix(COMPONENT) for name in component.graphs}


def made_of(parts: Iterable[str], kind: str | None = None) -> Architecture | None:
    """The model whose parts have these names, and whose class is `kind` if that is known; None if no such model is
    known."""
    names = set(parts)
    return next((each for each in _candidates(names, kind) if _needed(each) <= names <= each.parts.keys()), None)


def parts_of(kind: str) -> set[str] | None:
    """The parts of models of a class of diffusers; None for a class that no family has."""
    return next((set(each.parts) for each in _candidates((), kind)), None)


def whole_of(graph: Graph) -> Architecture | None:
    """The model that is made of the parts of what was opened; None if no such model is known."""
    return made_of(graph.parts, settings(graph, MODEL_INDEX).get(CLASS))


def index_of(folder: Path) -> dict[str, Any]:
    """The content of a folder's model_index.json."""
    return _parsed(Source(contained(folder, MODEL_INDEX, str(folder))))


def component_files(folder: Path) -> list[str]:
    """The files in folders without weights that a model_index.json lists, by their names relative to its own."""
    listed = (name for name, value in index_of(folder).items() if isinstance(value, list) and _plain(name))
    return [file for name in itertools.islice(listed, MOST_COMPONENTS) for file in _listed_in(folder, name)]


def needed_files(folder: Path, names: Iterable[str]) -> list[str]:
    """Of the names of a repository's files, those that its pipeline needs, by the model_index.json in `folder`.

    Weights in another precision, of other libraries, of the whole pipeline in one file and of parts that are not run,
    such as a safety checker, are none of them.
    """
    index = index_of(folder)
    inside: dict[str, list[str]] = {}
    for name in names:
        part, slash, own = name.partition("/")
        if slash and "/" not in own:
            inside.setdefault(part, []).append(own)
    kind = index.get(CLASS)
    run = parts_of(kind) if isinstance(kind, str) else None
    found = [MODEL_INDEX]
    for part, listed in inside.items():
        exported = isinstance(kind, str) and kind.startswith(OPTIMUM) and NETWORK in listed
        name = next((each for each in run or () if exported and part.startswith(f"{each}_")), part)
        if not isinstance(index.get(part), list) and name == part:
            continue
        kept = [each for each in listed if each.endswith(COMPONENTS)]
        if run is None or name in run:
            kept += model_directory.read_of(listed)
            kept += [each for each in listed if exported and each.startswith(NETWORK)]
        found += [f"{part}/{each}" for each in dict.fromkeys(kept)]
    return found


def folder_files(parent: Path, name: str) -> dict[str, Storage]:
    """The files of a component's folder without weights, such as a tokenizer's, by their names relative to its
    parent."""
    sources = {file: Source(contained(parent, file, str(parent))) for file in _listed_in(parent, name)}
    return {file: Region(source, 0, source.size) for file, source in sources.items()}


def _listed_in(parent: Path, name: str) -> list[str]:
    inner = parent / name
    if not inner.is_dir() or model_directory.weights(inner):
        return []
    return [f"{name}/{file}" for file in model_directory.listed(inner) if file.endswith(COMPONENTS)]


def is_component_file(name: str) -> bool:
    """Whether an attached file is one of a component, and may be written into a folder of its own."""
    folder, _, file = name.partition("/")
    return _plain(folder) and _plain(file) and file.endswith(COMPONENTS)


def _plain(name: str) -> bool:
    return re.fullmatch(r"(?![.])[\w.-]+", name, re.ASCII) is not None


def _parsed(source: Source) -> dict[str, Any]:
    """A JSON object; an empty one for other values."""
    source.budget.charge(source.size, MODEL_INDEX)
    said = parse(source.read(0, source.size), source, 0, "E-CONFIG-JSON", constants=True)
    return said if isinstance(said, dict) else {}


def _needed(whole: Architecture) -> set[str]:
    return {name for name, part in whole.parts.items() if not part.optional}


def _candidates(names: Iterable[str], kind: str | None = None) -> list[Architecture]:
    """Models with a part that one of the files or folders is called after, or of the class `kind` if that is known:
    models of diffusers always have a class. Other families are not imported."""
    kind = None if kind is None else kind.removeprefix(OPTIMUM)
    words = [kind] if kind is not None else [stem for stem in dict.fromkeys(map(_named, names)) if len(stem) > 1]
    quoted = [f'"{word}"' for word in words]
    families = [name for name in FOLDER_MODELS.names() if FOLDER_MODELS.contains(name, quoted)]
    found = [each for name in families for each in FOLDER_MODELS.load(name)]
    return [each for each in found if (kind in each.model_types if kind is not None else not each.model_types)]


def _named(name: str) -> str:
    """The model that a file or folder is called after: ``encodec`` of ``encodec-24khz.th``."""
    match = _STEM.match(name)
    return match[0] if match else ""


def _path_of(model: str, folder: Path, names: Iterable[str]) -> Path | None:
    """The file of a model, or its folder."""
    own = [name for name in names if name == model or re.fullmatch(rf"{re.escape(model)}[._-].*", name)]
    for suffix in SUFFIXES:
        for name in own:
            if name.endswith(suffix) and os.path.isfile(folder / name):
                return folder / name
    return next((folder / name for name in own if os.path.isdir(folder / name)), None)
