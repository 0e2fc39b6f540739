"""NumPy ``.npz`` archives: zip files of npy arrays, as numpy.savez and numpy.savez_compressed write them.

Source: the documentation of numpy.savez and numpy.lib.format. Metadata and attachments, for which the format has no
field, are one more member of JSON, which numpy.load ignores. The dtype of elements that numpy calls void is the
member's comment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..runtime.base.errors import Error, FormatError, UnsafeFileError, UnsupportedError
from ..runtime.base.untrusted.json import parse
from ..runtime.contract.format import FileLayout, Finding, Format, ReadOptions, WriteOptions, shards
from ..runtime.contract.metadata import from_strings, to_strings
from ..runtime.ir.graph import Graph
from ..runtime.tensor.dtype import DType
from ..runtime.tensor.file import Source
from .containers.npy import (
    ALIGNMENT,
    MAGIC,
    MAX_DIMS,
    NAMES,
    VOID_TYPES,
    ArrayLocation,
    Header,
    header_bytes,
    read_header,
    tensor,
)
from .containers.zip import Archive, Entry, Member, looks_like
from .containers.zip import layout as zip_layout
from .containers.zip.records import END_MAGIC, LOCAL

SUFFIX = ".npy"
METADATA = "__metadata__.json"
COMMENT = "dtype="
EDGE = 1 << 16
"""Bytes at the end of the file, where the zip directory is, that are searched for array names."""


def sniff(source: Source) -> bool:
    """An archive that is empty, or contains an array or the metadata member; of a damaged archive, one that names
    arrays."""
    head = source.head(LOCAL.size)
    if not looks_like(source) or len(head) < LOCAL.size:
        return head[:4] == END_MAGIC
    length = LOCAL.unpack(head)[-2]
    if _is_ours(source.head(LOCAL.size + length)[LOCAL.size :].decode("latin-1")):
        return True
    if SUFFIX.encode() not in source.read(max(0, source.size - EDGE), min(EDGE, source.size)):
        return False
    try:
        return any(_is_ours(name) for name in Archive(source).members)
    except Error:
        return True


def _is_ours(name: str) -> bool:
    return name.endswith(SUFFIX) or name == METADATA


def read(source: Source, options: ReadOptions) -> Graph:
    """Every array, with its header read; other members are noted."""
    archive = Archive(source)
    graph = Graph(format="npz", files=[source.path])
    source.budget.entry(len(archive.members), "tensors")
    for member in archive.members.values():
        if member.name == METADATA:
            from_strings(_metadata(archive, member), graph)
        elif not _is_array(archive, member):
            graph.note("W-NPZ-MEMBER", f"the member {member.name} is not an array and was left out")
        else:
            name = member.name.removesuffix(SUFFIX)
            if name in graph.weights:
                hint = "Rename one and pack the archive again"
                raise FormatError(
                    "E-NPZ-TWICE", source.path, f"two arrays are called {name!r}", at=member.at, hint=hint
                )
            graph.weights[name] = tensor(archive.storage(member), _header(archive, member, options))
    return graph


def _is_array(archive: Archive, member: Member) -> bool:
    """Whether numpy would load the member as an array: its content decides, not its name."""
    if member.name.endswith(SUFFIX):
        return True
    return member.nbytes >= len(MAGIC) and bytes(archive.storage(member).read(0, len(MAGIC))) == MAGIC


def _header(archive: Archive, member: Member, options: ReadOptions) -> Header:
    comment = member.comment.decode("latin-1")
    named = comment.removeprefix(COMMENT) if comment.startswith(COMMENT) else None
    name = member.name.removesuffix(SUFFIX)
    return read_header(
        archive.storage(member), ArrayLocation(archive.source, f"entry {name!r}", member.at), named, options.void_dtype
    )


def _metadata(archive: Archive, member: Member) -> dict[str, str]:
    strings = parse(archive.read(member), archive.source, member.offset, "E-NPZ-METADATA")
    if not isinstance(strings, dict) or not all(isinstance(value, str) for value in strings.values()):
        hint = "Remove or rename that member"
        why = f"{METADATA} is not an object of strings"
        raise FormatError("E-NPZ-METADATA", archive.source.path, why, at=member.offset, hint=hint)
    return strings


def layout(graph: Graph, options: WriteOptions) -> list[FileLayout]:
    """One archive, arrays in the graph's order, uncompressed, so that they can be mapped and written in any order."""
    if len(shards(graph.weights.items(), options)) > 1:
        raise UnsupportedError(
            "E-NPZ-SHARDS", None, "npz is written as one file only", hint="Use --to safetensors or --to gguf"
        )
    entries = [
        Entry(name + SUFFIX, header_bytes(held.dtype, held.shape), held, _comment(held.dtype))
        for name, held in graph.weights.items()
    ]
    strings = to_strings(graph)
    if strings:
        text = json.dumps(strings, indent=1, ensure_ascii=False, sort_keys=True)
        entries.append(Entry(METADATA, b"", text.encode()))
    return [zip_layout(f"{options.stem}.npz", entries, alignment=ALIGNMENT)]


def _comment(dtype: DType) -> bytes:
    return b"" if dtype in NAMES else f"{COMMENT}{dtype.name}".encode()


def check(source: Source, options: ReadOptions) -> Iterator[Finding]:
    """Members with wrong checksums; sizes are checked against headers when reading."""
    archive = Archive(source)
    for member in archive.members.values():
        try:
            archive.check_crc(member)
        except Error as error:
            yield Finding(error.code, "error", error.why, error.offset, member.name)


def scan(source: Source, options: ReadOptions) -> Iterator[Finding]:
    """Object arrays, which numpy unpickles on request, and members that are not arrays."""
    archive = Archive(source)
    for member in archive.members.values():
        try:
            if _is_array(archive, member):
                _header(archive, member, options)
            elif member.name != METADATA:
                yield Finding(
                    "W-NPZ-MEMBER", "info", f"the member {member.name} is not an array", member.at, member.name
                )
        except Error as error:
            yield Finding(
                error.code,
                "danger" if isinstance(error, UnsafeFileError) else "error",
                error.why,
                error.offset,
                member.name,
            )


FORMAT = Format(
    name="npz",
    title="NumPy archives",
    suffixes=(".npz",),
    sniff=sniff,
    read=read,
    layout=layout,
    dtypes=frozenset(NAMES) | VOID_TYPES,
    max_dims=MAX_DIMS,
    check=check,
    scan=scan,
)
