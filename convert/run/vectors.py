"""Vectors as a file: .npy, .npz, .json or .safetensors."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import IO

import numpy as np

from ...runtime.base.errors import UsageError
from ..console.atomic_replace import replacing

NAME = "vectors"
"""Name of the array in files that have names."""


def _json(file: IO[bytes], vectors: np.ndarray, texts: Sequence[str]) -> None:
    rows = [{"text": text, "vector": vector.tolist()} for text, vector in zip(texts, vectors, strict=True)]
    file.write(json.dumps(rows, ensure_ascii=False).encode())


def _npz(file: IO[bytes], vectors: np.ndarray, texts: Sequence[str]) -> None:
    np.savez(file, vectors=vectors)


def _safetensors(file: IO[bytes], vectors: np.ndarray, texts: Sequence[str]) -> None:
    header = {NAME: {"dtype": "F32", "shape": list(vectors.shape), "data_offsets": [0, vectors.nbytes]}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text + np.ascontiguousarray(vectors, "<f4").tobytes())


def _npy(file: IO[bytes], vectors: np.ndarray, texts: Sequence[str]) -> None:
    np.save(file, vectors)


WRITERS: Mapping[str, Callable[[IO[bytes], np.ndarray, Sequence[str]], None]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".json": _json,
    ".safetensors": _safetensors,
}


def check_suffix(path: str) -> None:
    """UsageError for a file name that no format of vectors has."""
    if os.path.splitext(path)[1].lower() not in WRITERS:
        raise UsageError("E-OUT-FORMAT", path, "unknown format of vectors", hint=f"Use {', '.join(WRITERS)}")


def write_vectors(path: str, vectors: np.ndarray, texts: Sequence[str], *, force: bool) -> None:
    """Write f32 vectors [texts, width] in the format of the file's suffix; UnsafeFileError for an existing file unless
    `force`."""
    with replacing(path, force=force) as file:
        WRITERS[os.path.splitext(path)[1].lower()](file, vectors, texts)
