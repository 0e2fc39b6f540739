"""Shard sets: the files of one model whose names are numbered, such as model-00001-of-00006.safetensors."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from ...runtime.base.errors import FileAccessError, FormatError
from . import hub
from .locate import located
from .model_directory import INDEX, weights

NUMBERED = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.[.\w]+)")
JOINED_BY_THEIR_FORMAT = ".gguf"
"""Suffix of shards that name their set themselves; opening the first one opens all."""


def is_numbered(name: str) -> bool:
    """Whether a file is by its name one of several shards."""
    match = NUMBERED.fullmatch(os.path.basename(name))
    return match is not None and int(match["count"]) > 1


def is_shard(name: str) -> bool:
    """Whether a file is by its name one of several shards that only an index or their numbers join."""
    match = NUMBERED.fullmatch(name)
    return match is not None and int(match["count"]) > 1 and match["suffix"].lower() != JOINED_BY_THEIR_FORMAT


def members(path: str | os.PathLike[str]) -> list[Path]:
    """All shards of the set of one.

    Raises:
        FormatError: its number is not one of the set.
        FileAccessError: shards of the set are missing.
    """
    match = NUMBERED.fullmatch(Path(path).name)
    assert match is not None
    number, count = int(match["number"]), int(match["count"])
    if not 1 <= number <= count:
        raise FormatError(
            "E-SHARD-COUNT", path, "does not belong to the set", expected=f"a number from 1 to {count}", found=number
        )
    found = _paths(path, match)
    missing = [member.name for member in found if not member.exists()]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        why = f"is shard {number} of {count}, of which {len(missing)} {verb} missing, such as {missing[0]!r}"
        raise FileAccessError("E-SHARD-MISSING", path, why, hint="Download all shards into the same folder")
    return found


def _paths(path: str | os.PathLike[str], match: re.Match[str]) -> list[Path]:
    """The paths of the set of a shard, whose name matches."""
    names = (
        f"{match['stem']}-{member:05d}-of-{match['count']}{match['suffix']}"
        for member in range(1, int(match["count"]) + 1)
    )
    return [Path(path).with_name(name) for name in names]


def index_of(path: str | os.PathLike[str]) -> Path:
    """The index of the set of a shard, which need not exist."""
    match = NUMBERED.fullmatch(Path(path).name)
    assert match is not None
    return Path(path).with_name(match["stem"] + match["suffix"] + INDEX)


def whole_set(path: str) -> list[str]:
    """The paths to open for a path: for one of several shards their index, or all of them."""
    if hub.is_uri(path) or os.path.isdir(path) or NUMBERED.fullmatch(Path(path).name) is None:
        return [path]
    located(path)
    found, index = members(path), index_of(path)
    return [str(index)] if index.exists() else list(map(str, found))


def superseded(folder: str | os.PathLike[str], names: Collection[str]) -> list[Path]:
    """Files in `folder` that hold the same models as the new files `names` in another number of shards: shards of
    another count, an index next to a single file, a single file next to an index."""
    found: set[Path] = set()
    for name in names:
        match = NUMBERED.fullmatch(os.path.basename(name))
        stem, suffix = (match["stem"], match["suffix"]) if match else os.path.splitext(os.path.basename(name))
        place, whole = Path(folder, name).parent, f"{stem}{suffix}"
        if match is None:
            if not os.path.lexists(place / f"{whole}{INDEX}") or f"{name}{INDEX}" in names:
                continue
            found.add(place / f"{whole}{INDEX}")
        elif f"{name.removesuffix(match[0])}{whole}{INDEX}" in names:
            found.add(place / whole)
        for path in place.iterdir() if place.is_dir() else ():
            other = NUMBERED.fullmatch(path.name)
            if other is not None and (other["stem"], other["suffix"]) == (stem, suffix):
                found.add(path)
    written = {Path(folder, name) for name in names}
    return sorted(path for path in found - written if os.path.lexists(path))


def whole_models(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The paths with a model in place of its shards: their index, or their folder."""
    return list(dict.fromkeys(map(whole_model, paths)))


def complete_sets(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The paths with a model in place of its shards where all of them are given, and no other weights are in their
    folder."""
    given = {os.path.abspath(path) for path in paths}

    def completed(path: str | os.PathLike[str]) -> str:
        if missing_shards(path, given):
            return os.fspath(path)
        whole = whole_model(path)
        names = weights(Path(whole)) if whole != os.fspath(path) and os.path.isdir(whole) else []
        others = any(os.path.abspath(os.path.join(whole, name)) not in given for name in names)
        return os.fspath(path) if others else whole

    found: list[str] = []
    for path in paths:
        whole = completed(path)
        if whole == os.fspath(path) or whole not in found:
            found.append(whole)
    return found


def missing_shards(path: str | os.PathLike[str], given: Collection[str]) -> int:
    """The number of shards of the set of `path` that are not among the absolute paths `given`; 0 for what is not one
    of several shards."""
    path = os.fspath(path)
    match = NUMBERED.fullmatch(Path(path).name)
    if match is None or hub.is_uri(path) or os.path.isdir(path) or not is_shard(Path(path).name):
        return 0
    return sum(os.path.abspath(member) not in given for member in _paths(path, match))


def whole_model(path: str | os.PathLike[str]) -> str:
    """The path, or for one of several shards their index, else their folder.

    Raises FormatError and FileAccessError as `members`.
    """
    path = os.fspath(path)
    if hub.is_uri(path) or os.path.isdir(path) or not is_shard(Path(path).name):
        return path
    located(path)
    members(path)
    index = index_of(path)
    return str(index if index.exists() else index.parent)
