"""Pipelines in two folders, opened as one: the last stage names the folder of the first in its model card."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ...models.pipelines.diffusion.folder_model import ConnectedPipelines
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FileAccessError, UsageError
from ...runtime.plugin.discovery import Plugins
from ...runtime.tensor.storage import Held, Storage
from .model_files import CLASS, MODEL_INDEX, component_files, folder_files, index_of, parts_of

CONNECTED = Plugins("models.diffusion", "CONNECTED")
MODEL_CARD = "README.md"
CARD_BYTES = 1 << 16
"""As much of a model card as is read: its front matter stands first."""
NAME = r"(?:\w[\w.-]*/)?\w[\w.-]*"


@dataclass(frozen=True)
class Stages:
    """The folders of a pipeline of two stages.

    Attributes:
        first, last: those of diffusers.
    """

    connected: ConnectedPipelines
    first: Path
    last: Path

    @property
    def models(self) -> dict[str, Path]:
        """The folder of each part, by its name in the whole."""
        prefix = self.connected.prefix
        return {
            name: self.first / name.removeprefix(prefix) if name.startswith(prefix) else self.last / name
            for name in sorted(parts_of(self.connected.whole) or ())
        }

    def files(self) -> dict[str, Storage]:
        """The model_index.json of the whole, and the files of the first stage's folders without weights."""
        index, first = index_of(self.last), index_of(self.first)
        prefix = self.connected.prefix
        listed = {f"{prefix}{name}": value for name, value in first.items() if isinstance(value, list)}
        whole: dict[str, Any] = {**index, **listed, CLASS: self.connected.whole}
        folders = {name.partition("/")[0] for name in component_files(self.first)}
        held = (folder_files(self.first, folder) for folder in sorted(folders))
        further = {f"{prefix}{name}": storage for files in held for name, storage in files.items()}
        return {MODEL_INDEX: Held(json.dumps(whole, indent=2).encode()), **further}


def connected_as(kind: str) -> ConnectedPipelines | None:
    """The pipelines of which a class of diffusers is the first or the last stage; None for others."""
    families = [name for name in CONNECTED.names() if CONNECTED.contains(name, [f'"{kind}"'])]
    found = (each for name in families for each in CONNECTED.load(name))
    return next((each for each in found if kind in (each.first, each.last)), None)


def stages_of(folder: Path) -> Stages | None:
    """The stages of the pipeline whose last one a folder holds; None for other folders.

    The first stage is in the folder that the model card names, next to this one, or in one of the same name that ends
    in ``-prior``; in the cache of the hub it is in the repository that the card names.

    Raises:
        UsageError: the folder holds the first stage.
        FileAccessError: the first stage is not there.
    """
    connected = _connected(folder)
    if connected is None:
        return None
    if index_of(folder).get(CLASS) == connected.first:
        why = f"holds the first stage of a pipeline alone ({connected.first})"
        raise UsageError("E-DIR-STAGE", folder, why, hint="Name the folder of the last stage, next to this one")
    named = first_named(folder, connected)
    names = [*([named.rpartition("/")[2]] if named else []), f"{folder.absolute().name}-{connected.key}"]
    beside = [folder.absolute().parent / name for name in names]
    found = next((path for path in beside if (path / MODEL_INDEX).is_file()), None)
    if found is None and named is not None:
        found = _cached(folder, named)
    if found is None:
        why = f"the pipeline is without its first stage: no folder {' or '.join(dict.fromkeys(names))} next to it"
        hint = f"Download {named or 'its repository'} into that folder"
        raise FileAccessError("E-DIR-STAGE", folder, why, hint=hint)
    return Stages(connected, found, folder)


def _connected(folder: Path) -> ConnectedPipelines | None:
    """The pipelines of which a folder holds a stage; None for other folders."""
    kind = index_of(folder).get(CLASS) if (folder / MODEL_INDEX).is_file() else None
    return connected_as(kind) if isinstance(kind, str) else None


def cards_of(folder: Path) -> list[str]:
    """The model card's name, for a folder with a stage of a pipeline."""
    return [] if _connected(folder) is None else [MODEL_CARD]


def first_of(folder: Path) -> str | None:
    """The repository of the first stage of a pipeline whose last one a folder holds; None for other folders."""
    connected = _connected(folder)
    last = connected is not None and index_of(folder).get(CLASS) == connected.last
    return first_named(folder, connected) if last and connected is not None else None


def first_named(folder: Path, connected: ConnectedPipelines) -> str | None:
    """The repository of the first stage, as the front matter of a model card names it."""
    card = folder / MODEL_CARD
    if not card.is_file():
        return None
    with card.open("rb") as file:
        text = file.read(CARD_BYTES).decode(errors="replace")
    matter = re.match(r"---\s*\n(.*?)\n---", text, re.DOTALL)
    said = matter and re.search(rf"^{connected.key}:[ \t]*(?:\n\s*-\s*)?[\"']?({NAME})", matter[1], re.MULTILINE)
    return said[1] if said else None


def _cached(folder: Path, repository: str) -> Path | None:
    """The newest snapshot of a repository in the cache of the hub that `folder` is in; None elsewhere."""
    if folder.absolute().parent.name != "snapshots":
        return None
    stored = folder.absolute().parents[2] / f"models--{repository.replace('/', '--')}" / "snapshots"
    found = [path for path in stored.glob("*") if (path / MODEL_INDEX).is_file()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)
