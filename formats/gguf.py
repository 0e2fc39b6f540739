"""GGUF: magic, counts, typed key-value pairs, tensor infos, then aligned tensor data; versions 1 to 3, either byte
order, split files.

Source: the GGUF specification (ggml, docs/gguf.md); gguf.cpp and llama-gguf-split where it leaves details open.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..runtime.base.errors import FileAccessError, FormatError
from ..runtime.base.string_array import StringArray
from ..runtime.base.units import counted
from ..runtime.contract.format import Finding, Format, ReadOptions
from ..runtime.contract.metadata import TYPED_KEY, from_strings
from ..runtime.ir.graph import Graph
from ..runtime.tensor.dtype import BY_GGML
from ..runtime.tensor.file import Source, contained
from .containers.gguf.byte_order import bad_scales
from .containers.gguf.cursor import DAMAGED, decoded
from .containers.gguf.header import ALIGNMENT_KEY, MAGIC, MAX_DIMS, Header, padded, read_header, text_region
from .containers.gguf.model_check import check_model, model_findings
from .containers.gguf.template_scan import MAX_CHARACTERS, suspicions
from .containers.gguf.writer import FILE_KEYS, MAX_NAME, SPLIT_COUNT, SPLIT_NO, SPLIT_TENSORS, MetadataFile, layout

SHARD_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
JSON_COST = 8
"""Peak memory per byte of JSON while parsing."""
TEMPLATE_KEY = "tokenizer.chat_template"


def sniff(source: Source) -> bool:
    """The magic bytes."""
    return source.head(4) == MAGIC


def read(source: Source, options: ReadOptions) -> Graph:
    """The tensors of a file, or of all shards of its set, as regions of the files."""
    header = read_header(source)
    count = _split_number(header, SPLIT_COUNT, 1)
    headers = [header] if count <= 1 else _whole_set(header, count)
    check_model(headers[0], sum(len(part.tensors) for part in headers))
    graph = Graph(format="gguf", files=[part.source.path for part in headers])
    _fill(graph, headers[0])
    for part in headers:
        _fill_weights(graph, part)
    if len(headers) > 1:
        for key in (SPLIT_NO, SPLIT_COUNT, SPLIT_TENSORS):
            graph.metadata.pop(key, None)
        extra = {key for part in headers[1:] for key in part.where} - {
            SPLIT_NO,
            SPLIT_COUNT,
            SPLIT_TENSORS,
            ALIGNMENT_KEY,
        }
        if extra:
            graph.note("W-GGUF-SPLIT", f"{counted(len(extra), 'key')} of later shards ignored, such as {min(extra)!r}")
    return graph


def _fill(graph: Graph, header: Header) -> None:
    """Metadata and attachments."""
    graph.metadata.update(header.metadata)
    graph.attachments.update(header.files)
    for name, key in FILE_KEYS.items():
        region = text_region(header, key, header.metadata.get(key))
        if region is not None and name not in graph.attachments:
            graph.attachments[name] = MetadataFile(region.source, region.offset, region.nbytes)
    untyped = graph.metadata.get(TYPED_KEY)
    if isinstance(untyped, str):
        header.source.budget.charge(JSON_COST * len(untyped), TYPED_KEY, at=header.where[TYPED_KEY])
        restored = Graph()
        from_strings({TYPED_KEY: untyped}, restored)
        if TYPED_KEY not in restored.metadata and not restored.metadata.keys() & header.where.keys():
            del graph.metadata[TYPED_KEY]
            graph.metadata.update(restored.metadata)
    if header.big:
        graph.event("W-GGUF-ENDIAN", "the file is big-endian; it is read, and written again, in little-endian order")


def _without_settings(graph: Graph) -> bool:
    """Whether a file names an architecture and none of its hyper-parameters: llama.cpp's files have them, those of
    diffusion models do not."""
    word = graph.metadata.get("general.architecture")
    return isinstance(word, str) and not any(key.startswith(f"{word}.") for key in graph.metadata)


def _fill_weights(graph: Graph, header: Header) -> None:
    for info in header.tensors:
        if info.name in graph.weights:
            why = f"tensor {info.name!r} is also in a shard before it"
            raise FormatError(
                "E-GGUF-DUPLICATE", header.source.path, why, at=info.at, hint="Check that no shard is there twice"
            )
        graph.weights[info.name] = header.tensor(info)
    long = [info.name for info in header.tensors if len(info.name.encode()) > MAX_NAME]
    if long and not _without_settings(graph):
        graph.note(
            "W-GGUF-NAME",
            f"{counted(len(long), 'tensor name', verb='is')} longer than the {MAX_NAME} bytes that llama.cpp reads",
            long[0],
        )
    if header.source.size > header.end:
        graph.note(
            "W-GGUF-TRAILING",
            f"{counted(header.source.size - header.end, 'byte', verb='follows')} the last tensor of "
            f"{header.source.path}",
        )


def _split_number(header: Header, key: str, absent: int | None) -> int:
    """An integer split key; `absent` if it is missing, or an error if `absent` is None."""
    import numpy

    value = header.metadata.get(key)
    if value is None and absent is not None:
        return absent
    if not isinstance(value, numpy.integer):
        at = header.where.get(key)
        why = f"is a shard in which {key} is not an integer"
        raise FormatError(
            "E-GGUF-SPLIT", header.source.path, why, at=at, found=value, hint="Split the original model again"
        )
    return int(value)


def _whole_set(named: Header, count: int) -> list[Header]:
    """The headers of all shards of the set that `named` belongs to, in order."""
    source = named.source
    own = _split_number(named, SPLIT_NO, None)
    stem = _stem(named, own, count)
    headers = []
    for number in range(count):
        name = f"{stem}-{number + 1:05d}-of-{count:05d}.gguf"
        if number == own:
            headers.append(named)
            continue
        path = contained(source.directory, name, source.path)
        if not path.exists():
            why = f"is shard {own + 1} of {count}, and {name!r} is not beside it"
            raise FileAccessError("E-SHARD-MISSING", source.path, why, hint="Download all shards into the same folder")
        part = read_header(Source(path))
        for key, wanted in ((SPLIT_COUNT, count), (SPLIT_NO, number)):
            found = _split_number(part, key, None)
            if found != wanted:
                raise _mismatch(part, key, wanted, found)
        headers.append(part)
    total = sum(len(part.tensors) for part in headers)
    for part in headers:
        promised = _split_number(part, SPLIT_TENSORS, total)
        if promised != total:
            raise _mismatch(part, SPLIT_TENSORS, total, promised)
    return headers


def _stem(header: Header, own: int, count: int) -> str:
    """The common prefix of the shards' names."""
    path = header.source.path
    match = SHARD_NAME.fullmatch(Path(path).name)
    if match is None:
        hint = "Restore its original name, such as model-00001-of-00003.gguf"
        why = f"is shard {own + 1} of {count}, but is not named as one"
        raise FormatError("E-GGUF-SPLIT-NAME", path, why, at=header.where[SPLIT_NO], hint=hint)
    for key, promised, found in ((SPLIT_NO, int(match["number"]) - 1, own), (SPLIT_COUNT, int(match["count"]), count)):
        if promised != found:
            raise _mismatch(header, key, promised, found)
    if own not in range(count):
        raise FormatError(
            "E-GGUF-SPLIT", path, f"is shard {own + 1} of {count}", at=header.where[SPLIT_NO], hint=DAMAGED
        )
    return match["stem"]


def _mismatch(header: Header, key: str, expected: int, found: int) -> FormatError:
    why, hint = (
        f"{key} differs from the other shards",
        "Check that all shards are from one download and keep their names",
    )
    return FormatError(
        "E-GGUF-SPLIT", header.source.path, why, at=header.where[key], expected=expected, found=found, hint=hint
    )


def check(source: Source, options: ReadOptions) -> Iterable[Finding]:
    """Scales of quantized blocks that are NaN or infinite, keys that contradict the model, nonzero padding; of this
    file only."""
    header = read_header(source)
    yield from model_findings(header)
    yield from _padding(header)
    for info in header.tensors:
        tensor = header.tensor(info)
        bad = bad_scales(tensor) if tensor.qtype is not None else None
        if bad is not None:
            at = header.start + info.offset + bad.block * info.dtype.block_nbytes
            why = (
                f"{counted(bad.count, 'block')} of tensor {info.name!r} have a scale that is NaN or infinite, "
                f"the first is block {bad.block:,}"
            )
            yield Finding("E-GGUF-SCALE", "error", why, at, info.name)


def _padding(header: Header) -> Iterator[Finding]:
    size = header.source.size
    ends = sorted((header.start + info.offset + info.nbytes) for info in header.tensors)
    for end in ends:
        stop = min(size, header.start + padded(end - header.start, header.alignment))
        if end < stop and any(header.source.read(end, stop - end)):
            yield Finding("W-GGUF-PADDING", "warning", "the padding after a tensor is not zero", end)


def scan(source: Source, options: ReadOptions) -> Iterable[Finding]:
    """Suspicious chat templates, and trailing bytes that no reader uses; nothing else in the format is executed."""
    header = read_header(source)
    if source.size > header.end:
        yield Finding(
            "W-GGUF-TRAILING",
            "warning",
            f"{counted(source.size - header.end, 'byte', verb='follows')} the last tensor",
            header.end,
        )
    for what, at, text in _templates(header):
        for found in suspicions(text):
            yield Finding("E-GGUF-TEMPLATE", found.severity, f"the template {what} {found.message}", at)


def _templates(header: Header) -> Iterator[tuple[str, int | None, str]]:
    for key, value in header.metadata.items():
        if key.startswith(TEMPLATE_KEY):
            values: list[Any] = list(value) if isinstance(value, list | StringArray) else [value]
            for item in values:
                if isinstance(item, str | bytes):
                    yield key, header.where[key], item if isinstance(item, str) else item.decode(errors="replace")
    for name, region in header.files.items():
        if name.endswith(".jinja"):
            text = decoded(region.read(0, min(region.nbytes, 4 * MAX_CHARACTERS + 4)))
            yield name, region.offset, text if isinstance(text, str) else text.decode(errors="replace")


FORMAT = Format(
    name="gguf",
    title="GGUF (llama.cpp), single or split",
    suffixes=(".gguf",),
    sniff=sniff,
    read=read,
    layout=layout,
    dtypes=frozenset(BY_GGML.values()),
    max_dims=MAX_DIMS,
    check=check,
    scan=scan,
)
