"""Models made of several models, each in a file or folder of its own beside the others."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from ...runtime.base.errors import FormatError
from ...runtime.contract.graph_files import ModelFiles
from ...runtime.plugin.discovery import Plugins
from . import model_directory

SETS = Plugins("models.pipelines", "MODEL_FILES")
SUFFIXES = (".safetensors", ".gguf", ".pt", ".pth", ".th", ".bin")
"""Suffixes of files of models, the preferred one first."""
_STEM = re.compile(r"[^.-]+")


def models_of(folder: Path) -> dict[str, Path] | None:
    """The files and folders of a model made of several, by the names of its models; None for other folders, and for
    those with further files of weights. FormatError for a folder that lacks one of the models."""
    names, weights = model_directory.listed(folder), model_directory.weights(folder)
    for each in _sets(names):
        found = {model: path for model in each.names if (path := _path_of(model, folder, names)) is not None}
        files = {path.name for path in found.values()}
        others = [name for name in weights if name not in files and _named(name) not in found]
        if others:
            continue
        if len(found) == len(each.names):
            return found
        if len(found) > 1 and len(weights) != 1:
            missing = ", ".join(model for model in each.names if model not in found)
            hint = "Put a file of weights or a folder of that name beside the others"
            raise FormatError("E-DIR-PART", folder, f"the model is without its {missing}", hint=hint)
    return None


def set_of(models: Iterable[str]) -> ModelFiles | None:
    """What the models of these names are together; None if nothing is known that is made of them."""
    names = list(models)
    return next((each for each in _sets(names) if sorted(each.names) == sorted(names)), None)


def _sets(names: Iterable[str]) -> list[ModelFiles]:
    """What is made of models that are called as one of the files or folders."""
    stems = dict.fromkeys(map(_named, names))
    modules = dict.fromkeys(module for stem in stems if len(stem) > 1 for module in SETS.mentioning(f'"{stem}"'))
    return [SETS.load(module) for module in modules]


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
