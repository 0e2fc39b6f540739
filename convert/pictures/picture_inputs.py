"""Pictures of a command line: files, folders, and patterns of names; and the files of annotated ones."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...models.pipelines.image.image_classification import AssumedPreparationWarning
from ...models.preprocess.picture import SUFFIXES, picture_of
from ...models.preprocess.preparation import Preparation
from ...models.preprocess.stated_preparation import imagenet_preparation, preparation_from
from ...runtime.base.errors import FileAccessError, FormatError, UsageError
from ...runtime.base.untrusted.json import parse
from ...runtime.ir.graph import Note
from ...runtime.tensor.file import Source
from ..console.atomic_replace import refuse_existing, replacing
from ..console.warned import warned
from ..run.input_files import files_of
from .annotate import Result, annotated

IMAGENET = "imagenet"
"""Instead of a file: the preparation of ImageNet's classifiers."""


def pictures_of(given: Sequence[str]) -> list[str]:
    """The paths of pictures: files as they are, the pictures of folders, and the files that patterns match.

    Raises UsageError for a folder without pictures, FileAccessError for a path or pattern that leads to nothing.
    """
    return files_of(given, SUFFIXES, "E-PICTURE-NONE", "pictures")


def pictures_by_folder(folder: str) -> list[tuple[str, str]]:
    """The path of each picture below a folder, and its label: the name of the folder that it is in.

    Raises UsageError for a folder without labeled pictures.
    """
    if not os.path.isdir(folder):
        why = "not a folder" if os.path.lexists(folder) else "no such folder"
        raise FileAccessError("E-IO-OPEN", folder, why)
    found = [
        (str(path), label.name)
        for label in sorted(Path(folder).iterdir())
        if label.is_dir()
        for path in sorted(label.iterdir())
        if path.suffix.lower() in SUFFIXES
    ]
    if not found:
        hint = "Put pictures into one folder for each label, such as DIR/cat/1.jpg"
        raise UsageError("E-PICTURE-NONE", folder, "holds no folders with pictures", hint=hint)
    return found


def read_preparation(path: str) -> Preparation:
    """How a preprocessor_config.json, or a config.json of timm, prepares pictures; ``imagenet`` names no file."""
    if path == IMAGENET:
        return imagenet_preparation()
    source = Source(path)
    source.budget.charge(source.size, path)
    said = parse(source.read(0, source.size), source, 0, "E-CONFIG-JSON", constants=True)
    found = preparation_from(said, path) if isinstance(said, dict) else None
    if found is None:
        hint = "Name a preprocessor_config.json, or a config.json with pretrained_cfg"
        raise FormatError("E-PREPROCESSOR", path, "says nothing about pictures", hint=hint)
    return found


def assumed_preparations() -> contextlib.AbstractContextManager[list[Note]]:
    """Notes of preparations that models assume in the block."""
    return warned(AssumedPreparationWarning, "W-PREPROCESSOR")


def annotated_paths(folder: str, pictures: Sequence[str], *, force: bool) -> list[str]:
    """A path in the folder for each picture, ``NAME.png``, numbered where names repeat; UnsafeFileError for existing
    ones unless `force`, FileAccessError for a folder that is a file."""
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise FileAccessError("E-IO-OPEN", folder, "not a folder", hint="Name a folder for the annotated pictures")
    paths = list(_numbered(folder, pictures))
    for path in paths:
        refuse_existing(path, force=force)
    return paths


def _numbered(folder: str, pictures: Sequence[str]) -> Iterator[str]:
    seen: set[str] = set()
    for picture in pictures:
        stem = name = Path(picture).stem
        number = 1
        while name in seen:
            number += 1
            name = f"{stem}-{number}"
        seen.add(name)
        yield os.path.join(folder, f"{name}.png")


def write_annotated(path: str, picture: str, results: Sequence[Result], *, force: bool) -> None:
    """Write the picture with its results drawn, as PNG."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    image = annotated(picture_of(picture), results)
    with replacing(path, force=force) as file:
        image.save(file, "PNG")
