"""Content hashes: equal for equal names, dtypes, shapes and values, whatever format the file has.

Canonical hashes are equal for equal weights of one architecture, whatever names, layouts and dtypes the files have.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable

from ..ops.quants import codecs, dequantized
from ..runtime.dtype import F32
from ..runtime.graph import Graph
from ..runtime.passes.weights import collected
from ..runtime.tensor import CHUNK, Tensor
from .comparing import equal_bytes
from .counterparts import TIED
from .placing import placed
from .progress import ignored


def tensor_hash(tensor: Tensor, advance: Callable[[int], object] = ignored) -> str:
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
    return combined_hash({name: tensor_hash(tensor) for name, tensor in collected(graph).items()})


def canonical_weights(graph: Graph) -> dict[str, Tensor]:
    """The weights by their architecture's names and in its layouts, as f32 unless they are wider.

    A head equal to the embedding is left out, as files with tied weights leave it out.

    Raises UnsupportedError where the architecture is not known.
    """
    side = placed(graph)
    found = side.found
    needed = [name for name in (*found.stored, *found.made) if name in found.weights and name not in side.spare]
    weights = {name: found.weights[name] for name in needed}
    misfits = {name: side.weights[found.stored[name][1][0]] for name in found.wrong}
    extra = {name: side.weights[name] for name in found.extra}
    plain = {name: _widened(tensor) for name, tensor in (*weights.items(), *misfits.items(), *extra.items())}
    for name, other in TIED.items():
        if name in plain and other in plain and _same(plain[name], plain[other]):
            del plain[name]
    return plain


def _widened(tensor: Tensor) -> Tensor:
    """The values as f32, which holds those of all narrower types and of the types of blocks."""
    if tensor.qtype is not None:
        return dequantized(tensor) if tensor.qtype in codecs() else tensor
    return tensor.cast("f32") if tensor.dtype.kind == "float" and tensor.dtype.bits < F32.bits else tensor


def _same(a: Tensor, b: Tensor) -> bool:
    return (a.dtype, a.shape) == (b.dtype, b.shape) and equal_bytes(a, b)


def canonical_hash(graph: Graph) -> str:
    """The hash of all weights of a graph by its architecture's names; raises as `canonical_weights` does."""
    return combined_hash({name: tensor_hash(tensor) for name, tensor in canonical_weights(graph).items()})


def file_sha256(path: str | os.PathLike[str], advance: Callable[[int], object] = ignored) -> str:
    """SHA-256 of a file's bytes; `advance` gets the bytes read."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while data := file.read(CHUNK):
            digest.update(data)
            advance(len(data))
    return digest.hexdigest()
