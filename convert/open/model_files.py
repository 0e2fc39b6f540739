"""Folders of models whose parts have a file or a folder each, called after the parts.

A family lists such models as `FOLDER_MODELS`, and mentions the names of the parts in quotes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import Architecture
from ...runtime.plugin.discovery import ARCHITECTURES, Plugins
from . import model_directory

FOLDER_MODELS = Plugins("models", "FOLDER_MODELS")
SUFFIXES = (".safetensors", ".gguf", ".pt", ".pth", ".th", ".bin")
"""Suffixes of files of models, the preferred one first."""
_STEM = re.compile(r"[^.-]+")


def models_of(folder: Path) -> dict[str, Path] | None:
    """The files and folders of a model made of several, by the names of its models; None for other folders, and for
    those with further files of weights. FormatError for a folder that lacks one of the models."""
    names, weights = model_directory.listed(folder), model_directory.weights(folder)
    lacking: list[str] = []
    for each in _candidates(names):
        found = {model: path for model in each.parts if (path := _path_of(model, folder, names)) is not None}
        files = {path.name for path in found.values()}
        others = [name for name in weights if name not in files and _named(name) not in found]
        if others:
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


def made_of(parts: Iterable[str]) -> Architecture | None:
    """The model whose parts have these names; None if no such model is known."""
    names = set(parts)
    return next((each for each in _candidates(names) if _needed(each) <= names <= each.parts.keys()), None)


def _needed(whole: Architecture) -> set[str]:
    return {name for name, part in whole.parts.items() if not part.optional}


def _candidates(names: Iterable[str]) -> list[Architecture]:
    """Models with a part that one of the files or folders is called after; other families are not imported."""
    stems = [f'"{stem}"' for stem in dict.fromkeys(map(_named, names)) if len(stem) > 1]
    families = ARCHITECTURES.mentioning("FOLDER_MODELS = ")
    return [each for name in families if ARCHITECTURES.contains(name, stems) for each in FOLDER_MODELS.load(name)]


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
