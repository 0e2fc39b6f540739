"""Safetensors: the header's length in 8 bytes, a JSON header, then tensor data without gaps or overlaps.

Source: the format section of the safetensors documentation, and its own tests for what a reader must reject.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

from ..runtime.base.errors import FormatError, UnsupportedError
from ..runtime.base.units import counted
from ..runtime.base.untrusted.json import parse
from ..runtime.contract.format import FileLayout, Format, Piece, ReadOptions, WriteOptions
from ..runtime.contract.metadata import from_strings
from ..runtime.ir.graph import Graph
from ..runtime.tensor.dtype import BY_SAFETENSORS, DType
from ..runtime.tensor.file import Source
from ..runtime.tensor.storage import Region
from ..runtime.tensor.stored_tensor import StoredTensor
from .containers.shard_index import sharded

WIDEST_FIRST = (
    "U64",
    "I64",
    "F64",
    "C64",
    "F32",
    "U32",
    "I32",
    "BF16",
    "F16",
    "U16",
    "I16",
    "F8_E5M2FNUZ",
    "F8_E4M3FNUZ",
    "F8_E8M0",
    "F8_E4M3",
    "F8_E5M2",
    "I8",
    "U8",
    "F6_E3M2",
    "F6_E2M3",
    "F4",
    "BOOL",
)
"""Order in which the safetensors library writes dtypes, so that the same tensors give the same file."""
MAX_DIMS = 64
ALIGNMENT = 8
MAX_ELEMENTS = 1 << 60
"""Limit of elements, also with zero-length dimensions: below what numpy can index in the widest dtype."""


def sniff(source: Source) -> bool:
    """A header length below 2**40, followed by an opening brace."""
    head = source.head(9)
    return head[8:] == b"{" and int.from_bytes(head[:8], "little") < 1 << 40


def read(source: Source, options: ReadOptions) -> Graph:
    """The header's tensors, as regions of the file."""
    header, start = _header(source)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise FormatError("E-ST-METADATA", source.path, "__metadata__ is not an object of strings", at=8)
    graph = Graph(format="safetensors", files=[source.path])
    from_strings(metadata, graph)
    entries = [_entry(source, name, value) for name, value in header.items()]
    _check_cover(source, entries, source.size - start)
    for name, dtype, shape, begin, end in sorted(entries, key=lambda entry: (entry[3], entry[4])):
        graph.weights[name] = StoredTensor(dtype, shape, Region(source, start + begin, end - begin))
    return graph


def _header(source: Source) -> tuple[dict[str, Any], int]:
    if source.size < 8:
        raise FormatError(
            "E-ST-SHORT", source.path, "too short for the header length", at=0, expected="8 bytes", found=source.size
        )
    length = int.from_bytes(source.read(0, 8), "little")
    if length > source.size - 8:
        why = f"the header claims {counted(length, 'byte')}, the file has {source.size - 8:,} after its length"
        hint = "The file is truncated, or not a safetensors file"
        raise FormatError("E-ST-HEADER-LENGTH", source.path, why, at=0, hint=hint)
    source.budget.charge(length, "the safetensors header", at=0)
    data = source.read(8, length)
    if data[:1] != b"{" or not data.rstrip(b" ").endswith(b"}"):
        raise FormatError(
            "E-ST-JSON", source.path, "the header does not start with '{' and end with '}' and spaces", at=8
        )
    header = parse(data, source, 8, "E-ST-JSON")
    source.budget.entry(len(header), "tensors", at=8)
    return header, 8 + length


def _entry(source: Source, name: str, value: Any) -> tuple[str, DType, tuple[int, ...], int, int]:
    def malformed(code: str, why: str, **sides: Any) -> FormatError:
        return FormatError(code, source.path, f"tensor {name!r} {why}", at=8, **sides)

    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        found = sorted(value) if isinstance(value, dict) else type(value).__name__
        raise malformed("E-ST-ENTRY", "has the wrong keys", expected="dtype, shape, data_offsets", found=found)
    shape, offsets = value["shape"], value["data_offsets"]
    if not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise malformed(
            "E-ST-ENTRY",
            f"has shape {str(shape)[:80]} and data_offsets {str(offsets)[:80]}, which are not ascending non-negative "
            "integers",
        )
    if len(shape) > MAX_DIMS:
        raise malformed("E-ST-SHAPE", "has too many dimensions", expected=f"at most {MAX_DIMS}", found=len(shape))
    if math.prod(length or 1 for length in shape) >= MAX_ELEMENTS:
        raise malformed("E-ST-SHAPE", f"has the shape {shape}, which is more than any memory can address")
    dtype = BY_SAFETENSORS.get(value["dtype"]) if isinstance(value["dtype"], str) else None
    if dtype is None:
        raise UnsupportedError(
            "E-ST-DTYPE",
            source.path,
            f"tensor {name!r} has the unknown dtype {str(value['dtype'])[:80]!r}",
            at=8,
            hint=f"Known dtypes: {', '.join(WIDEST_FIRST)}",
        )
    need, have = dtype.nbytes(math.prod(shape)), offsets[1] - offsets[0]
    if need is None:
        raise malformed("E-ST-SIZE", f"of {dtype.safetensors} {shape} does not fill whole bytes")
    if need != have:
        raise malformed(
            "E-ST-SIZE",
            f"of {dtype.safetensors} {shape} does not match its data_offsets",
            expected=f"{counted(need, 'byte')}",
            found=f"{have:,}",
        )
    return name, dtype, tuple(shape), offsets[0], offsets[1]


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def _check_cover(source: Source, entries: list[tuple[str, DType, tuple[int, ...], int, int]], length: int) -> None:
    start, position = source.size - length, 0
    for name, _, _, begin, end in sorted(entries, key=lambda entry: (entry[3], entry[4])):
        if begin != position:
            code, why = (
                ("E-ST-OVERLAP", "overlaps the tensor before it")
                if begin < position
                else ("E-ST-HOLE", "leaves a gap before it")
            )
            raise FormatError(
                code, source.path, f"tensor {name!r} {why}", at=start + begin, expected=position, found=begin
            )
        position = end
    if position > length:
        raise FormatError(
            "E-ST-TRUNCATED",
            source.path,
            f"{counted(position - length, 'byte')} of tensor data are missing",
            at=source.size,
            expected=f"{counted(start + position, 'byte')}",
            found=f"{source.size:,}",
            hint="The file is truncated; download it again",
        )
    if position < length:
        raise FormatError(
            "E-ST-TRAILING",
            source.path,
            f"{counted(length - position, 'byte', verb='follows')} the last tensor",
            at=start + position,
        )


def layout(graph: Graph, options: WriteOptions) -> list[FileLayout]:
    """One file, or shards with an index."""
    return sharded(graph, ordered(graph.weights), options, (".safetensors", ".safetensors"), _file)


def ordered(weights: dict[str, StoredTensor]) -> list[tuple[str, StoredTensor]]:
    """Sort by dtype, widest first, so that every tensor is aligned, then by name."""
    return sorted(weights.items(), key=lambda item: (WIDEST_FIRST.index(str(item[1].dtype.safetensors)), item[0]))


def _file(name: str, group: list[tuple[str, StoredTensor]], metadata: dict[str, str]) -> FileLayout:
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    offsets = [0]
    for tensor_name, tensor in group:
        offsets.append(offsets[-1] + tensor.nbytes)
        header[tensor_name] = {
            "dtype": tensor.dtype.safetensors,
            "shape": list(tensor.shape),
            "data_offsets": offsets[-2:],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    start = 8 + len(text)
    pieces = [Piece(0, struct.pack("<Q", len(text)) + text)]
    pieces += [
        Piece(start + offset, tensor) for offset, (_, tensor) in zip(offsets, group, strict=False) if tensor.nbytes
    ]
    return FileLayout(name, start + offsets[-1], tuple(pieces))


FORMAT = Format(
    name="safetensors",
    title="Safetensors, single or sharded with an index",
    suffixes=(".safetensors",),
    sniff=sniff,
    read=read,
    layout=layout,
    dtypes=frozenset(BY_SAFETENSORS.values()),
    max_dims=MAX_DIMS,
)
