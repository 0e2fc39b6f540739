"""llama.cpp's file of an encoder and a projector (mmproj) next to that of the language model."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from ...runtime.base.errors import FileAccessError, UsageError
from ...runtime.contract.mmproj import CLIP
from ...runtime.ir.graph import Graph
from . import hub, model_directory

PREFIX, SUFFIX = "mmproj-", ".gguf"
ARCHITECTURE = "general.architecture"
BESIDE = "W-GGUF-MMPROJ"
"""The note of a file that was found in the model's folder."""
WIDTHS = ("clip.vision.projection_dim", "clip.audio.projection_dim")
_SHARD = re.compile(r"-\d{5}-of-\d{5}\Z")
_TYPES = ("f16", "bf16", "f32", "q8_0")
"""Ends of the names of variants of one file, the preferred one first."""


def is_mmproj(graph: Graph) -> bool:
    """Whether a graph is such a file."""
    return graph.metadata.get(ARCHITECTURE) == CLIP


def takes_mmproj(graph: Graph) -> bool:
    """Whether a graph is a GGUF file that may lack its encoder."""
    return graph.format == "gguf" and graph.mmproj is None and ARCHITECTURE in graph.metadata and not is_mmproj(graph)


def mmproj_name(file: str, names: Sequence[str]) -> str | None:
    """The file next to a language model's that has its encoder: ``mmproj-NAME.gguf`` for ``NAME.gguf``, or else the
    only one, the f16 one of its variants. None if no file, or several."""
    own = _SHARD.sub("", file.removesuffix(SUFFIX))
    encoders = [name for name in names if model_directory.is_mmproj_name(name)]
    same = f"{PREFIX}{own}{SUFFIX}"
    return same if same in encoders else _only(encoders)


def fetch_mmproj(graph: Graph, uri: str, revision: str | None) -> None:
    """Download the encoder's file next to a language model's GGUF file on the hub; a note where the repository of a
    downloaded model cannot be listed. FileAccessError if the file cannot be downloaded."""
    if not takes_mmproj(graph):
        return
    try:
        others = hub.folder_files(uri, revision)
    except FileAccessError as error:
        graph.event("W-HUB-MMPROJ", f"no mmproj file was looked for: {error.why}")
        return
    name = mmproj_name(uri.rpartition("/")[2], list(others))
    if name is not None:
        hub.resolve(others[name], revision)


def add_mmproj(graph: Graph, path: Path, read: Callable[[Path], Graph]) -> None:
    """Give a language model from a GGUF file the `Graph.mmproj` of its folder: ``mmproj-NAME.gguf`` for ``NAME.gguf``,
    or else the only one there if its features have the width of the model's embeddings.

    Args:
        path: the file, or the folder of the only model.
    """
    if not takes_mmproj(graph):
        return
    file = Path(graph.files[0]) if path.is_dir() else path
    same = f"{PREFIX}{_SHARD.sub('', file.name.removesuffix(SUFFIX))}{SUFFIX}"
    chosen = mmproj_name(file.name, model_directory.listed(file.parent))
    if chosen is None or not os.path.isfile(file.parent / chosen):
        return
    found = read(file.parent / chosen)
    if not is_mmproj(found) or (chosen != same and not _fits(graph, found)):
        return
    graph.mmproj = found
    graph.event(BESIDE, f"read with {chosen}, its encoder and projector")


def paired(graphs: Sequence[Graph]) -> list[Graph]:
    """Inputs of which one is an encoder's file and another one the language model's as one model; others as they are.
    UsageError for several encoders' files."""
    encoders = [graph for graph in graphs if is_mmproj(graph)]
    others = [graph for graph in graphs if not is_mmproj(graph)]
    if not encoders or not others:
        return list(graphs)
    if len(encoders) > 1 or len(others) > 1:
        raise _unfit(encoders[-1])
    return [with_encoder(others[0], encoders[0])]


def with_encoder(graph: Graph, encoder: Graph) -> Graph:
    """A language model with an encoder's file in place of that of its folder. UsageError for files of other kinds."""
    if graph.format != "gguf" or is_mmproj(graph) or not is_mmproj(encoder):
        raise _unfit(encoder)
    graph.mmproj = encoder
    graph.notes = [note for note in graph.notes if note.code != BESIDE]
    return graph


def _unfit(encoder: Graph) -> UsageError:
    path = encoder.files[0] if encoder.files else None
    why = "a language model's GGUF file and one mmproj file make up a model"
    return UsageError("E-MMPROJ-INPUTS", path, why, hint="Name these two files")


def _only(names: Sequence[str]) -> str | None:
    """The only file of those, or the preferred one of the variants of one."""
    stems = {re.sub(rf"[.-]?({'|'.join(_TYPES)})\Z", "", name.lower().removesuffix(SUFFIX)): name for name in names}
    if len(stems) != 1:
        return None
    return min(names, key=lambda name: next(
        (rank for rank, kind in enumerate(_TYPES) if re.search(rf"[.-]{kind}\.", name.lower())), len(_TYPES)
    ))  # fmt: skip


def _fits(graph: Graph, found: Graph) -> bool:
    """Whether features of the encoder have the width of the language model's embeddings."""
    width = graph.metadata.get(f"{graph.metadata[ARCHITECTURE]}.embedding_length")
    stated = next((found.metadata[key] for key in WIDTHS if key in found.metadata), None)
    return width is not None and width == stated
