"""PyTorch checkpoints: zip archives, TorchScript, the two earlier formats, and plain pickles; read without torch and
without executing code.

The containers are described in `containers/torch`; this module detects the format and puts the weights into a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..runtime.base.errors import Error, FormatError
from ..runtime.base.units import counted
from ..runtime.contract.format import FileLayout, Finding, Format, ReadOptions, WriteOptions
from ..runtime.ir.graph import Graph
from ..runtime.tensor.dtype import BY_TORCH
from ..runtime.tensor.file import Source
from ..runtime.tensor.storage import Storage
from .containers import tar, zip
from .containers.pickle.cursor import DAMAGED
from .containers.pickle.machine import Persistent
from .containers.shard_index import sharded
from .containers.torch.allowed_names import load
from .containers.torch.legacy_stream import APPENDED, MAGIC, Checkpoint, carrier_of, read_stream
from .containers.torch.legacy_tar import MEMBERS, read_tar
from .containers.torch.pickle_scan import is_pickle, scan_file
from .containers.torch.plain_values import Found, PlainValues
from .containers.torch.state_dict import fill
from .containers.torch.tensor_records import Rebuilder, StorageRef
from .containers.torch.writer import file
from .containers.torch.zip_archive import read_archive

EDGE = 1 << 16
SYSTEM_MEMBER = "sys_info"
PICKLE_SUFFIXES = (".pkl", ".pickle")
WIDE = 1 << 40
STEM = "pytorch_model"
"""Ending of weight file names in transformers and diffusers, before the suffix."""


def sniff(source: Source) -> bool:
    """A zip archive with a pickle in it, torch's legacy tar, or a pickle."""
    if zip.looks_like(source):
        return _holds_pickle(source)
    return _is_torch_tar(source) if tar.looks_like(source) else is_pickle(source)


def _holds_pickle(source: Source) -> bool:
    try:
        return any(name.endswith(PICKLE_SUFFIXES) for name in zip.Archive(source).members)
    except Error:
        edges = source.head(EDGE) + source.read(max(0, source.size - EDGE), min(EDGE, source.size))
        return any(suffix.encode() in edges for suffix in PICKLE_SUFFIXES)


def _is_torch_tar(source: Source) -> bool:
    try:
        return not tar.members(source).keys().isdisjoint(MEMBERS)
    except Error:
        return any(name.encode() in source.head(EDGE) for name in (SYSTEM_MEMBER, *MEMBERS))


def read(source: Source, options: ReadOptions) -> Graph:
    """The weights as regions of the file, plain values as metadata."""
    graph = Graph(format="pytorch", files=[source.path])
    fill(graph, _checkpoint(source, options), options, source.budget.limits.depth)
    source.budget.entry(len(graph.weights), "tensors")
    return graph


def read_values(source: Source, options: ReadOptions, made: Callable[[Found], Any]) -> Any:
    """The whole value of a checkpoint, with what `made` makes of its tensors; UnsupportedError for pickled objects."""
    return PlainValues(_checkpoint(source, options), source.path, source.budget.limits.depth, made).value()


def _checkpoint(source: Source, options: ReadOptions) -> Checkpoint:
    if zip.looks_like(source):
        return read_archive(source, options.allow_globals)
    if tar.looks_like(source):
        return read_tar(source, options.allow_globals)
    first = load(carrier_of(source), 0, options.allow_globals)
    if first.value == MAGIC:
        return read_stream(source, first.end, options.allow_globals)
    if isinstance(first.value, int) and abs(first.value) >= WIDE:
        why, found = "starts with a wrong magic number", hex(first.value)
        raise FormatError("E-PTH-MAGIC", source.path, why, at=0, hint=DAMAGED, expected=hex(MAGIC), found=found)
    if first.end != source.size:
        why = f"{counted(source.size - first.end, 'byte', verb='follows')} the end of the pickle"
        raise FormatError("E-PKL-TRAILING", source.path, why, at=first.end, hint=APPENDED)

    def locate(ref: StorageRef, persistent: Persistent) -> Storage:
        why = "refers to a storage, which a plain pickle does not contain"
        raise FormatError("E-PKL-PERSISTENT", source.path, why, at=persistent.at, hint=DAMAGED)

    return Checkpoint(first.value, Rebuilder(source.path, locate), first.operations)


def layout(graph: Graph, options: WriteOptions) -> list[FileLayout]:
    """One archive, or shards with an index. In directories of transformers and diffusers both end with ``.bin``."""
    single = ".bin" if options.stem.endswith(STEM) else ".pth"
    return sharded(graph, graph.weights.items(), options, (single, ".bin"), file)


def check(source: Source, options: ReadOptions) -> Iterator[Finding]:
    """Members with wrong checksums; torch can omit checksums, which are 0 then."""
    if not zip.looks_like(source):
        return
    archive = zip.Archive(source)
    for member in archive.members.values():
        if not member.crc:
            continue
        try:
            archive.check_crc(member)
        except Error as error:
            yield Finding(error.code, "error", error.why, error.offset, member.name)


FORMAT = Format(
    name="pytorch",
    title="PyTorch: zip, TorchScript, legacy stream and tar, plain pickle",
    suffixes=(".pth", ".pt", ".bin", ".ckpt", ".pkl"),
    sniff=sniff,
    read=read,
    layout=layout,
    dtypes=frozenset(BY_TORCH.values()),
    stem=STEM,
    check=check,
    scan=scan_file,
)
