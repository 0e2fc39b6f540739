"""Sharded checkpoints with an index, as on the Hugging Face hub: ``model-00001-of-00002.safetensors`` and
``model.safetensors.index.json``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from ...runtime.contract.format import FileLayout, Piece, WriteOptions, shards
from ...runtime.contract.metadata import to_strings
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor

Group = list[tuple[str, StoredTensor]]


def sharded(
    graph: Graph,
    tensors: Iterable[tuple[str, StoredTensor]],
    options: WriteOptions,
    suffixes: tuple[str, str],
    file: Callable[[str, Group, dict[str, str]], FileLayout],
) -> list[FileLayout]:
    """One file, or shards and their index; the metadata goes into the first shard.

    Args:
        tensors: in the order in which they are written.
        suffixes: of a single file, and of a shard.
        file: lays out one file from its name, tensors and metadata.
    """
    groups = shards(tensors, options)
    metadata = to_strings(graph)
    if len(groups) == 1:
        return [file(options.stem + suffixes[0], groups[0], metadata)]
    files, weight_map = [], {}
    for number, group in enumerate(groups, 1):
        name = f"{options.stem}-{number:05d}-of-{len(groups):05d}{suffixes[1]}"
        files.append(file(name, group, metadata if number == 1 else {}))
        weight_map.update(dict.fromkeys((tensor for tensor, _ in group), name))
    index = {"metadata": {"total_size": graph.nbytes}, "weight_map": dict(sorted(weight_map.items()))}
    text = json.dumps(index, indent=2, ensure_ascii=False).encode() + b"\n"
    return [*files, FileLayout(f"{options.stem}{suffixes[1]}.index.json", len(text), (Piece(0, text),))]
