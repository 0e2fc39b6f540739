"""Writes whisper.cpp's ``ggml-*.bin``."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping

from ...runtime.base.errors import UnsupportedError
from ...runtime.base.string_array import StringArray
from ...runtime.contract.format import FileLayout, Piece, WriteOptions
from ...runtime.ir.graph import Graph
from ...runtime.tensor.dtype import F16, F32
from ...runtime.tensor.stored_tensor import StoredTensor
from .ggml_records import TYPES, UNVERSIONED, WHISPER

VERSION, FACTOR = 2, 1000
"""Version of the block layouts, and what it is multiplied with besides the file type."""
NUMBERS = {dtype: number for number, dtype in TYPES[VERSION].items()}
FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k": 11,
              "q4_k": 12, "q5_k": 13, "q6_k": 14}  # fmt: skip
FILTERS = "mel_filters"


def prepare(graph: Graph, options: WriteOptions) -> None:
    """Cast the kernels of convolutions to what whisper.cpp has memory for: f32 in files of f32, else f16."""
    kernels = [name for name, tensor in graph.weights.items() if len(tensor.shape) == 3]
    kinds = {tensor.dtype for tensor in _matrices(graph.weights)}
    if kinds == {F32}:
        graph.note("W-WHISPER-F32", "whisper.cpp loads files of f32 but does not run them: write --dtype f16 for it")
    for name in kernels:
        graph.weights[name] = graph.weights[name].dequantize().cast(F32 if kinds == {F32} else F16)


def layout(graph: Graph, options: WriteOptions, suffix: str) -> list[FileLayout]:
    """One file. UnsupportedError for graphs that are no Whisper model in whisper.cpp's names, and for matrices of
    several types."""
    sizes = [graph.metadata.get(f"whisper.{name}") for name in WHISPER[:-1]]
    tokens = graph.metadata.get("tokenizer.ggml.tokens")
    filters = graph.weights.get(FILTERS)
    if None in sizes or not isinstance(tokens, list | StringArray) or filters is None or len(filters.shape) != 2:
        why = "only models of Whisper are written as files of whisper.cpp"
        raise UnsupportedError("E-WHISPER-MODEL", None, why, hint="Use --to gguf or --to safetensors")
    head = [UNVERSIONED, struct.pack("<11i", *map(int, map(str, sizes)), _file_type(graph.weights))]
    head += [struct.pack("<2i", *filters.shape)]
    pieces: list[Piece] = []
    at = _append(pieces, 0, b"".join(head))
    at = _append(pieces, at, filters)
    vocabulary = [token if isinstance(token, bytes) else str(token).encode() for token in tokens]
    lengths = b"".join(struct.pack("<i", len(token)) + token for token in vocabulary)
    at = _append(pieces, at, struct.pack("<i", len(vocabulary)) + lengths)
    for name, tensor in graph.weights.items():
        if name != FILTERS:
            for part in _record(name, tensor):
                at = _append(pieces, at, part)
    return [FileLayout(f"{options.stem}{suffix}", at, tuple(pieces))]


def _append(pieces: list[Piece], at: int, data: bytes | StoredTensor) -> int:
    pieces.append(Piece(at, data))
    return at + pieces[-1].nbytes


def _record(name: str, tensor: StoredTensor) -> Iterator[bytes | StoredTensor]:
    data = name.encode()
    shape = tensor.shape[::-1]
    yield struct.pack(f"<3i{len(shape)}i", len(shape), len(data), NUMBERS[tensor.dtype], *shape) + data
    yield tensor


def _matrices(weights: Mapping[str, StoredTensor]) -> list[StoredTensor]:
    """All matrices but filters and positions."""
    return [
        tensor
        for name, tensor in weights.items()
        if len(tensor.shape) == 2 and name != FILTERS and not name.endswith(("positional_embedding", ".bias"))
    ]


def _file_type(weights: Mapping[str, StoredTensor]) -> int:
    """The file type, which is that of all matrices but positions."""
    kinds = Counter(tensor.dtype for tensor in _matrices(weights))
    if len(kinds) != 1:
        found = ", ".join(sorted(dtype.name for dtype in kinds))
        why = "whisper.cpp reads files whose matrices are of one type"
        raise UnsupportedError("E-WHISPER-TYPES", None, why, found=found, hint="Choose one with --dtype")
    (dtype,) = kinds
    number = FILE_TYPES[dtype.name]
    return number if number < 2 else VERSION * FACTOR + number
