"""Format contract: what a file format implements to be read, written and recognised.

A format is one module of `formats/` with a constant `FORMAT`. Reading gives a `Graph` whose tensors are still in the
file. Writing is declarative: `layout` says which bytes stand where in which file before any is written, and the writer
fills them in, in any order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from ..base.dataclass import dataclass
from ..ir.graph import Graph, Meta
from ..tensor.dtype import DType
from ..tensor.file import Source
from ..tensor.tensor import Tensor


@dataclass(frozen=True)
class ReadOptions:
    """How to read.

    Attributes:
        key: which nested dictionary of a pickle holds the weights, None to find it.
        allow_globals: extra pickle names that may stand in a file as inert records.
        void_dtype: dtype of npy entries that only say "1-byte void", None when it is not known.
    """

    key: str | None = None
    allow_globals: frozenset[str] = frozenset()
    void_dtype: str | None = None


@dataclass(frozen=True)
class WriteOptions:
    """How to write.

    Attributes:
        stem: file name without suffix, from which shard names are made.
        shard_nbytes, shard_tensors: the most one file holds, None for one file.
        shard_groups: how many tensors, in order, each file holds, instead.
        external_data: whether tensors go into files beside the model: never, always, or auto, where it is too large for
            one file.
        opset: of a written graph, None for the lowest that has what it needs.
    """

    stem: str = "model"
    shard_nbytes: int | None = None
    shard_tensors: int | None = None
    shard_groups: tuple[int, ...] | None = None
    external_data: str = "auto"
    opset: int | None = None


@dataclass(frozen=True)
class Checksum:
    """A CRC-32 over a piece, started from `seed`, stored little-endian at the file offsets `at`."""

    seed: int
    at: tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """Bytes at an offset of a file: literal, or a tensor's."""

    offset: int
    data: bytes | Tensor
    checksum: Checksum | None = None

    @property
    def nbytes(self) -> int:
        return self.data.nbytes if isinstance(self.data, Tensor) else len(self.data)


@dataclass(frozen=True)
class FileLayout:
    """One output file: its name, length and pieces. Bytes that no piece covers are zero."""

    name: str
    nbytes: int
    pieces: tuple[Piece, ...]

    def __repr__(self) -> str:
        return f"<FileLayout {self.name}: {self.nbytes} bytes in {len(self.pieces)} pieces>"


@dataclass(frozen=True)
class Finding:
    """What `scan` or `check` found: a stable code, severity (danger, error, warning, info), one sentence, byte
    offset."""

    code: str
    severity: str
    message: str
    offset: int | None = None
    member: str | None = None


def nothing_found(source: Source, options: ReadOptions) -> Iterable[Finding]:
    """For formats whose reader already checks everything."""
    return ()


def no_keys(graph: Graph) -> Mapping[str, Meta]:
    """For formats all of whose metadata is in `Graph.metadata`."""
    return {}


@dataclass(frozen=True)
class Format:
    """A file format.

    Attributes:
        name: also the module's name and the value of ``--to``.
        title: one line for tables.
        suffixes: file name endings, the first one used for new files.
        sniff: whether a file is of this format, by its content.
        read: headers only; tensors stay in the file.
        layout: the files that hold a graph, None for formats that are only read.
        dtypes: what can be written.
        max_dims: the most dimensions a written tensor can have, None for any number.
        graphs: whether it holds a graph with nodes, and nothing without; the others hold weights only.
        ragged: whether tensors of sub-byte types may end within a byte.
        prepare: changes a graph into what can be written, before anything else looks at it.
        stem: what the file is called in a model directory.
        check: findings that need the tensor data or go beyond what reading checks.
        scan: security findings; must look at every byte that could carry code.
        model_keys: metadata that is not among `Graph.metadata`, by key.
        edit: the file of that name with other metadata and all other bytes as they stand, from the file, its graph with
            changed metadata, and the changes; None for formats whose files are written anew.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    sniff: Callable[[Source], bool]
    read: Callable[[Source, ReadOptions], Graph]
    layout: Callable[[Graph, WriteOptions], list[FileLayout]] | None = None
    dtypes: frozenset[DType] = field(default_factory=frozenset)
    max_dims: int | None = None
    graphs: bool = False
    ragged: bool = False
    prepare: Callable[[Graph, WriteOptions], object] | None = None
    stem: str = "model"
    check: Callable[[Source, ReadOptions], Iterable[Finding]] = nothing_found
    scan: Callable[[Source, ReadOptions], Iterable[Finding]] = nothing_found
    model_keys: Callable[[Graph], Mapping[str, Meta]] = no_keys
    edit: Callable[[Source, Graph, Mapping[str, Meta], str], FileLayout] | None = None


def shards(tensors: Iterable[tuple[str, Tensor]], options: WriteOptions) -> list[list[tuple[str, Tensor]]]:
    """Tensors in order, cut into groups that keep to the options; a tensor larger than a shard gets its own."""
    if options.shard_groups is not None:
        items = iter(tensors)
        return [list(itertools.islice(items, count)) for count in options.shard_groups]
    groups: list[list[tuple[str, Tensor]]] = [[]]
    filled = 0
    for name, tensor in tensors:
        full = options.shard_nbytes is not None and filled + tensor.nbytes > options.shard_nbytes
        if groups[-1] and (full or len(groups[-1]) == options.shard_tensors):
            groups.append([])
            filled = 0
        groups[-1].append((name, tensor))
        filled += tensor.nbytes
    return groups
