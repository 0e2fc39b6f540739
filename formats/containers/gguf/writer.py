"""GGUF writer, version 3, little-endian: file layout for one file or numbered shards.

Metadata keeps its order. Values without a GGUF type are stored as JSON under one key of this package. An attached file
is stored under its conventional key, otherwise under a key of this package, as a string, or as an array of u8 if it is
not UTF-8.
"""

from __future__ import annotations

import codecs
import json
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from ....runtime.base.errors import UnsupportedError, UsageError
from ....runtime.base.units import counted
from ....runtime.contract.format import FileLayout, Piece, WriteOptions, shards
from ....runtime.contract.metadata import TYPED_KEY, to_json
from ....runtime.ir.graph import Graph
from ....runtime.tensor.dtype import U8 as BYTE
from ....runtime.tensor.storage import Region, Storage
from ....runtime.tensor.stored_tensor import StoredTensor
from .header import ALIGNMENT_KEY, DEFAULT_ALIGNMENT, FILE_PREFIX, MAGIC, is_alignment, padded
from .values import ARRAY, STRING, U8, encoded, key_bytes

MAX_NAME = 63
"""Maximum tensor name length in bytes that llama.cpp reads."""
MAX_SHARDS = (1 << 16) - 1
SPLIT_NO, SPLIT_COUNT, SPLIT_TENSORS = "split.no", "split.count", "split.tensors.count"
FILE_KEYS = {"tokenizer.json": "tokenizer.huggingface.json", "chat_template.jinja": "tokenizer.chat_template"}

Chunk = bytes | StoredTensor
Pair = tuple[Chunk, ...]


class MetadataFile(Region):
    """An attached file whose content is also a metadata value; only the metadata is written."""


def layout(graph: Graph, options: WriteOptions) -> list[FileLayout]:
    """One file, or shards named and marked as llama-gguf-split does, with the metadata in the first."""
    _check_names(graph.weights, options.longest_name or MAX_NAME)
    alignment = _alignment(graph)
    pairs = _pairs(graph)
    groups = shards(graph.weights.items(), options)
    if len(groups) == 1:
        return [_file(f"{options.stem}.gguf", pairs, groups[0], alignment)]
    if len(groups) > MAX_SHARDS:
        why = f"the tensors need {counted(len(groups), 'shard')}"
        raise UnsupportedError("E-GGUF-SPLIT", None, why, expected=f"at most {MAX_SHARDS:,}", hint="Use larger shards")
    import numpy

    others = [] if alignment == DEFAULT_ALIGNMENT else [_pair(ALIGNMENT_KEY, numpy.uint32(alignment))]
    files = []
    for number, group in enumerate(groups):
        marks = (
            (SPLIT_NO, numpy.uint16(number)),
            (SPLIT_COUNT, numpy.uint16(len(groups))),
            (SPLIT_TENSORS, numpy.int32(len(graph))),
        )
        name = f"{options.stem}-{number + 1:05d}-of-{len(groups):05d}.gguf"
        own = pairs if number == 0 else others
        files.append(_file(name, [*own, *(_pair(key, value) for key, value in marks)], group, alignment))
    return files


def _check_names(names: Iterable[str], longest: int) -> None:
    for name in names:
        try:
            length = len(name.encode())
        except UnicodeEncodeError as error:
            raise UnsupportedError(
                "E-GGUF-NAME", None, f"tensor name {name!r} is not Unicode", hint="Rename it with --rename"
            ) from error
        if length > longest:
            why = f"tensor name {name!r} has {counted(length, 'byte')}"
            raise UnsupportedError(
                "E-GGUF-NAME", None, why, expected=f"at most {longest}", hint="Shorten it with --rename 'RE=REPL'"
            )


def _alignment(graph: Graph) -> int:
    import numpy

    value = graph.metadata.get(ALIGNMENT_KEY, DEFAULT_ALIGNMENT)
    if isinstance(value, bool) or not isinstance(value, int | numpy.uint32) or not is_alignment(int(value)):
        why = f"{ALIGNMENT_KEY} is {str(value)[:40]!r}"
        raise UsageError(
            "E-GGUF-ALIGNMENT",
            None,
            why,
            expected="a u32, a power of two up to 2^20",
            hint="Remove it, or set it to 32",
        )
    return int(value)


def _pairs(graph: Graph) -> list[Pair]:
    """All key-value pairs: metadata in order, values without a type, attached files."""
    files = {
        FILE_KEYS.get(name, FILE_PREFIX + name): storage
        for name, storage in graph.attachments.items()
        if not isinstance(storage, MetadataFile)
    }
    for key, name in ((key, name) for name, key in FILE_KEYS.items() if key in files):
        if not _is_text(files[key]):
            files[FILE_PREFIX + name] = files.pop(key)
    pairs: list[Pair] = []
    untyped: dict[str, Any] = {}
    for key, value in _without_split(graph.metadata).items():
        if key in files:
            pairs.append(_file_pair(key, files.pop(key)))
        elif key_bytes(key) is None or encoded(value) is None:
            untyped[key] = to_json(value)
        else:
            pairs.append(_pair(key, value))
    if untyped:
        if TYPED_KEY in graph.metadata:
            why = f"the metadata key {TYPED_KEY!r} is needed for values without a type"
            raise UsageError("E-GGUF-KEY", None, why, hint="Remove it")
        graph.note(
            "W-GGUF-JSON",
            f"{len(untyped)} metadata values have no GGUF type and are stored as JSON, such as {next(iter(untyped))!r}",
        )
        pairs.append(_pair(TYPED_KEY, json.dumps(untyped, separators=(",", ":"), sort_keys=True)))
    return pairs + [_file_pair(key, storage) for key, storage in files.items()]


def _without_split(metadata: dict[str, Any]) -> dict[str, Any]:
    """Metadata without shard keys; those of an unsplit file (count 0 or 1) stay."""
    whole = str(metadata.get(SPLIT_COUNT, 1)) in ("0", "1")
    return (
        metadata
        if whole
        else {key: value for key, value in metadata.items() if key not in (SPLIT_NO, SPLIT_COUNT, SPLIT_TENSORS)}
    )


def _pair(key: str, value: Any) -> Pair:
    name, data = key_bytes(key), encoded(value)
    assert name is not None
    assert data is not None
    return (name + data,)


def _file_pair(key: str, storage: Storage) -> Pair:
    name = key_bytes(key)
    if name is None:
        raise UnsupportedError(
            "E-GGUF-KEY", None, f"an attached file cannot be called {key!r}", hint="Omit it with --no-tokenizer"
        )
    kind = struct.pack("<I", STRING.number) if _is_text(storage) else struct.pack("<II", ARRAY.number, U8.number)
    head = name + kind + struct.pack("<Q", storage.nbytes)
    return (head, StoredTensor(BYTE, (storage.nbytes,), storage)) if storage.nbytes else (head,)


def _is_text(storage: Storage) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    tensor = StoredTensor(BYTE, (storage.nbytes,), storage)
    try:
        for data in tensor.chunks():
            decoder.decode(data)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _file(name: str, pairs: Sequence[Pair], tensors: Sequence[tuple[str, StoredTensor]], alignment: int) -> FileLayout:
    chunks: list[Chunk] = [MAGIC + struct.pack("<IQQ", 3, len(tensors), len(pairs))]
    chunks += [chunk for pair in pairs for chunk in pair]
    offsets = [0]
    for tensor_name, tensor in tensors:
        chunks.append(_tensor_info(tensor_name, tensor, offsets[-1]))
        offsets.append(offsets[-1] + padded(tensor.nbytes, alignment))
    pieces, length = _merged(chunks)
    start = padded(length, alignment)
    pieces += [
        Piece(start + offset, tensor) for offset, (_, tensor) in zip(offsets, tensors, strict=False) if tensor.nbytes
    ]
    return FileLayout(name, start + offsets[-1], tuple(pieces))


def _tensor_info(name: str, tensor: StoredTensor, offset: int) -> bytes:
    data, dims = name.encode(), tensor.shape[::-1]
    assert tensor.dtype.ggml is not None
    return struct.pack(f"<Q{len(data)}sI{len(dims)}QIQ", len(data), data, len(dims), *dims, tensor.dtype.ggml, offset)


def _merged(chunks: Sequence[Chunk]) -> tuple[list[Piece], int]:
    """Consecutive chunks with adjacent literals joined, and their total length."""
    pieces: list[Piece] = []
    position, literal = 0, bytearray()
    for chunk in chunks:
        if isinstance(chunk, StoredTensor):
            pieces += [Piece(position - len(literal), bytes(literal)), Piece(position, chunk)]
            literal.clear()
            position += chunk.nbytes
        else:
            literal += chunk
            position += len(chunk)
    if literal:
        pieces.append(Piece(position - len(literal), bytes(literal)))
    return pieces, position
