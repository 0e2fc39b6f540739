"""Nested dictionaries, lists, numbers, strings and arrays as one safetensors file.

Arrays are tensors of the file, named by their path such as ``state_dict.fc.weight``; the rest is a JSON text in the
file's metadata, next to a checksum of all of it. A file appears under its name when it is complete; until then it is a
hidden file, which the next one to write into the folder removes if its process was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...formats import safetensors
from ...formats.containers.whole_file import whole_file
from ...runtime.base.errors import FormatError, UsageError
from ...runtime.base.system_error import write_error
from ...runtime.base.untrusted.json import parse
from ...runtime.contract.format import FileLayout, ReadOptions, WriteOptions
from ...runtime.ir.graph import Graph
from ...runtime.tensor.file import Source
from ...runtime.tensor.stored_tensor import StoredTensor
from ...tensors.core.conversion import array_of

KEY = "candle_convert.nested"
"""Of the JSON text in the file's metadata."""
CHECKSUM = "candle_convert.crc32"
"""Of the checksum in the file's metadata; files of earlier versions do not have it."""
MAX_START = 1 << 10
"""Bytes in which the metadata of a safetensors file begin."""
UNFINISHED = ".unfinished"
"""Suffix of hidden files that are being written."""
ABANDONED_AFTER = 60
"""Seconds; a process holds its file long before."""
HINT = "Take a checkpoint that a trainer of this package wrote"


def save_nested(item: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write nested dictionaries, lists and tuples of arrays, tensors, numbers, strings and None.

    Raises UsageError for anything else, FileAccessError if the file cannot be written.
    """
    graph = Graph()
    graph.metadata[KEY] = json.dumps(_packed(item, (), graph.weights))
    graph.metadata[CHECKSUM] = _checksum(graph)
    (layout,) = safetensors.layout(graph, WriteOptions())
    write_whole(layout, Path(path))


def write_whole(layout: FileLayout, target: Path) -> None:
    """Write a file, which appears under its name when it is complete."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target.parent)
        with whole_file(target, f".{target.name}.", UNFINISHED) as file:
            _locked(file)
            _write(layout, file)
    except OSError as error:
        raise write_error(target, error) from error


def _locked(file: Any) -> bool:
    """Hold a file until it is closed or this process ends; False if another process holds it, or files here cannot be
    held."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_abandoned(folder: Path) -> None:
    """Remove what processes that were killed while they wrote have left: old files that nobody holds."""
    for path in filter(Path.is_file, folder.glob(f".*{UNFINISHED}")):
        with contextlib.suppress(OSError), path.open("rb") as file:
            is_old = time.time() - os.fstat(file.fileno()).st_mtime > ABANDONED_AFTER
            if is_old and _locked(file):
                path.unlink(missing_ok=True)


def load_nested(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a file of `save_nested`; tensors are arrays.

    Raises FormatError if the file is another's or damaged.
    """
    source = Source(path)
    try:
        graph = safetensors.read(source, ReadOptions())
        text = graph.metadata.get(KEY)
        if not isinstance(text, str):
            raise FormatError("E-CHECKPOINT", path, "is safetensors, but not a checkpoint of a trainer", hint=HINT)
        if graph.metadata.get(CHECKSUM) not in (None, _checksum(graph)):
            raise FormatError(
                "E-CHECKPOINT", path, "has changed since it was written", hint="Take an earlier checkpoint"
            )
        nested = parse(text.encode(), source, 8, "E-CHECKPOINT", constants=True)
        found = _unpacked(nested, {name: tensor.numpy() for name, tensor in graph.weights.items()})
        if not isinstance(found, dict):
            raise KeyError
        return found
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise FormatError("E-CHECKPOINT", path, "names tensors or structures that it does not have") from error
    finally:
        source.close()


def is_nested(path: str | os.PathLike[str]) -> bool:
    """Whether a file is one of `save_nested`."""
    target = Path(path)
    try:
        with target.open("rb") as file:
            start = file.read(MAX_START)
    except OSError:
        return False
    return start[8:9] == b"{" and f'"{KEY}"'.encode() in start


def _checksum(graph: Graph) -> str:
    """CRC-32 of the JSON text, and of names, types and elements of tensors."""
    found = zlib.crc32(graph.metadata[KEY].encode())
    for name, tensor in sorted(graph.weights.items()):
        found = zlib.crc32(f"{name} {tensor.dtype} {tensor.shape}".encode(), found)
        for chunk in tensor.chunks():
            found = zlib.crc32(chunk, found)
    return f"{found:08x}"


def _write(layout: FileLayout, file: Any) -> None:
    for piece in layout.pieces:
        file.seek(piece.offset)
        for chunk in piece.data.chunks() if isinstance(piece.data, StoredTensor) else (piece.data,):
            file.write(chunk)


def _packed(item: Any, path: tuple[str, ...], tensors: dict[str, StoredTensor]) -> Any:
    """JSON in which each list is ``["list" or "tuple", ...]`` or ``["tensor", its name]``, and each dictionary
    ``["dict", [key, value], ...]``."""
    if item is None or isinstance(item, bool | int | str) or type(item) is float:
        return item
    if isinstance(item, np.generic) and item.dtype.kind in "biuf" and item.ndim == 0:
        return _packed(item.item(), path, tensors)
    if isinstance(item, Mapping):
        return ["dict", *[[_key(key, path), _packed(each, (*path, str(key)), tensors)] for key, each in item.items()]]
    if isinstance(item, list | tuple):
        kind = "list" if isinstance(item, list) else "tuple"
        return [kind, *[_packed(each, (*path, str(index)), tensors) for index, each in enumerate(item)]]
    if not hasattr(item, "__array__") and not hasattr(item, "__dlpack__"):
        why = f"{'.'.join(path)} is {type(item).__name__}, which a checkpoint cannot hold"
        raise UsageError("E-CHECKPOINT", None, why, expected="dictionaries, lists, arrays, numbers, strings")
    name = ".".join(path)
    while name in tensors:
        name += "_"
    tensors[name] = StoredTensor.of(array_of(item))
    return ["tensor", name]


def _key(key: Any, path: tuple[str, ...]) -> Any:
    if not isinstance(key, str | int):
        why = f"{'.'.join(path)} has the key {key!r}, which a checkpoint cannot hold"
        raise UsageError("E-CHECKPOINT", None, why, expected="strings and integers")
    return key


def _unpacked(item: Any, tensors: Mapping[str, np.ndarray]) -> Any:
    if not isinstance(item, list):
        return item
    kind, *members = item
    if kind == "tensor":
        return tensors[members[0]]
    if kind == "dict":
        return {key: _unpacked(each, tensors) for key, each in members}
    found = [_unpacked(member, tensors) for member in members]
    return {"list": list, "tuple": tuple}[kind](found)
