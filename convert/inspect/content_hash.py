"""Content hash: equal for equal names, dtypes, shapes and values, in any file format."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable

from ...runtime.ir.graph import Graph
from ...runtime.passes.weights.collect import collect_weights
from ...runtime.tensor.stored_tensor import CHUNK, StoredTensor
from ..console.progress import ignored


def tensor_hash(tensor: StoredTensor, advance: Callable[[int], object] = ignored) -> str:
    """SHA-256 over dtype, shape and the little-endian row-major bytes; `advance` gets the bytes read."""
    digest = hashlib.sha256(json.dumps([tensor.dtype.name, list(tensor.shape)]).encode() + b"\n")
    for data in tensor.chunks():
        digest.update(data)
        advance(len(data))
    return digest.hexdigest()


def combined_hash(hashes: dict[str, str]) -> str:
    """SHA-256 over the tensors' names and hashes in the names' order."""
    return hashlib.sha256(json.dumps(sorted(hashes.items()), ensure_ascii=False).encode()).hexdigest()


def content_hash(graph: Graph) -> str:
    """The hash of all weights of a graph."""
    return combined_hash({name: tensor_hash(tensor) for name, tensor in collect_weights(graph).items()})


def file_sha256(path: str | os.PathLike[str], advance: Callable[[int], object] = ignored) -> str:
    """SHA-256 of a file's bytes; `advance` gets the bytes read."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while data := file.read(CHUNK):
            digest.update(data)
            advance(len(data))
    return digest.hexdigest()
