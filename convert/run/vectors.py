"""Vectors as a file: .npy, .npz, .json or .safetensors."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

import numpy as np

from ...runtime.base.errors import UsageError
from ..console.atomic_replace import replacing

NAME = "vectors"
"""Name of the array in files that have names; matrices are called vectors.0, vectors.1 ..."""
Vectors = np.ndarray | Sequence[np.ndarray]
"""f32 [texts, width], or a matrix [tokens, width] for each text."""


def _named(vectors: Vectors) -> dict[str, np.ndarray]:
    """The arrays of a file by name."""
    if isinstance(vectors, np.ndarray):
        return {NAME: vectors}
    return {f"{NAME}.{number}": matrix for number, matrix in enumerate(vectors)}


def _json(file: IO[bytes], vectors: Vectors, texts: Sequence[str]) -> None:
    rows = [{"text": text, "vector": vector.tolist()} for text, vector in zip(texts, vectors, strict=True)]
    file.write(json.dumps(rows, ensure_ascii=False).encode())


def _npz(file: IO[bytes], vectors: Vectors, texts: Sequence[str]) -> None:
    arrays: dict[str, Any] = _named(vectors)
    np.savez(file, **arrays)


def _safetensors(file: IO[bytes], vectors: Vectors, texts: Sequence[str]) -> None:
    header, end = {}, 0
    for name, array in _named(vectors).items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for array in _named(vectors).values():
        file.write(np.ascontiguousarray(array, "<f4").tobytes())


def _npy(file: IO[bytes], vectors: Vectors, texts: Sequence[str]) -> None:
    np.save(file, vectors)


WRITERS: Mapping[str, Callable[[IO[bytes], Vectors, Sequence[str]], None]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".json": _json,
    ".safetensors": _safetensors,
}


def check_suffix(path: str, *, matrices: bool = False) -> None:
    """UsageError for a file name that no format of vectors has, or of matrices of different lengths."""
    suffix = os.path.splitext(path)[1].lower()
    if matrices and suffix == ".npy":
        raise UsageError("E-OUT-FORMAT", path, ".npy holds one array, and each input has its own", hint="Use .npz")
    if suffix not in WRITERS:
        raise UsageError("E-OUT-FORMAT", path, "unknown format of vectors", hint=f"Use {', '.join(WRITERS)}")


def write_vectors(path: str, vectors: Vectors, texts: Sequence[str], *, force: bool) -> None:
    """Write vectors in the format of the file's suffix; UnsafeFileError for an existing file unless
    `force`."""
    with replacing(path, force=force) as file:
        WRITERS[os.path.splitext(path)[1].lower()](file, vectors, texts)
