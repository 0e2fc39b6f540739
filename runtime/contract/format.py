"""Format contract: what a file format implements to be read, written and detected.

A format is one module of `formats/` with a constant `FORMAT`. Reading returns a `Graph` of stored tensors. Writing is
declarative: `layout` returns the files and the pieces of each before any byte is written, and the writer fills them in,
in any order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from ..base.dataclass import dataclass
from ..base.units import counted
from ..ir.graph import Graph, Meta
from ..tensor.dtype import DType
from ..tensor.file import Source
from ..tensor.stored_tensor import StoredTensor


@dataclass(frozen=True)
class ReadOptions:
    """Read options.

    Attributes:
        key: which nested dictionary of a pickle holds the weights, None to find it.
        allow_globals: further pickle globals that are accepted as inert records.
        void_dtype: dtype of npy entries stored as void, None if unknown.
    """

    key: str | None = None
    allow_globals: frozenset[str] = frozenset()
    void_dtype: str | None = None


@dataclass(frozen=True)
class WriteOptions:
    """Write options.

    Attributes:
        stem: file name without suffix, from which shard names are made.
        shard_nbytes, shard_tensors: maximum bytes and tensors of one file, None for one file.
        shard_groups: number of tensors of each file, in order; overrides both.
        external_data: whether tensors go into further files: never, always, or auto (if the model is too large for
            one file).
        opset: opset of a written ONNX graph, None for the lowest that has all its operators.
        longest_name: bytes that the name of a tensor may have, None for what every reader of the format takes.
    """

    stem: str = "model"
    shard_nbytes: int | None = None
    shard_tensors: int | None = None
    shard_groups: tuple[int, ...] | None = None
    external_data: str = "auto"
    opset: int | None = None
    longest_name: int | None = None


@dataclass(frozen=True)
class Checksum:
    """A CRC-32 over a piece, started from `seed`, stored little-endian at the file offsets `at`."""

    seed: int
    at: tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """Bytes at an offset of a file: literal, or a tensor's."""

    offset: int
    data: bytes | StoredTensor
    checksum: Checksum | None = None

    @property
    def nbytes(self) -> int:
        return self.data.nbytes if isinstance(self.data, StoredTensor) else len(self.data)


@dataclass(frozen=True)
class FileLayout:
    """One output file: its name, length and pieces. Bytes that no piece covers are zero."""

    name: str
    nbytes: int
    pieces: tuple[Piece, ...]

    def __repr__(self) -> str:
        return f"<FileLayout {self.name}: {counted(self.nbytes, 'byte')} in {counted(len(self.pieces), 'piece')}>"


@dataclass(frozen=True)
class Finding:
    """A finding of `scan` or `check`: a stable code, severity (danger, error, warning, info), one sentence, byte
    offset."""

    code: str
    severity: str
    message: str
    offset: int | None = None
    member: str | None = None


def nothing_found(source: Source, options: ReadOptions) -> Iterable[Finding]:
    """The `check` of formats whose reader checks everything."""
    return ()


def no_keys(graph: Graph) -> Mapping[str, Meta]:
    """The `model_keys` of formats whose metadata is all in `Graph.metadata`."""
    return {}


@dataclass(frozen=True)
class Format:
    """A file format.

    Attributes:
        name: also the module's name and the value of ``--to``.
        title: one line for tables.
        suffixes: file name endings, the first one used for new files.
        sniff: whether a file is of this format, by its content.
        read: reads headers; tensors are lazy.
        layout: the output files of a graph, None for read-only formats.
        dtypes: dtypes that can be written.
        max_dims: maximum rank of a written tensor, None for any.
        architecture: the only one whose models are written; empty for any weights.
        graphs: whether files hold a graph with nodes; other formats hold weights only.
        ragged: whether tensors of sub-byte types may end within a byte.
        prepare: transforms a graph for writing, before planning.
        stem: file name without suffix in a model directory.
        check: findings that need the tensor data or go beyond what reading checks.
        scan: security findings; must cover every byte that could carry code.
        model_keys: metadata outside of `Graph.metadata`, by key.
        edit: returns the file with changed metadata and all other bytes unchanged, from the file, its graph with
            changed metadata, and the changes; None for formats whose files are rewritten.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    sniff: Callable[[Source], bool]
    read: Callable[[Source, ReadOptions], Graph]
    layout: Callable[[Graph, WriteOptions], list[FileLayout]] | None = None
    dtypes: frozenset[DType] = field(default_factory=frozenset)
    max_dims: int | None = None
    architecture: str = ""
    graphs: bool = False
    ragged: bool = False
    prepare: Callable[[Graph, WriteOptions], object] | None = None
    stem: str = "model"
    check: Callable[[Source, ReadOptions], Iterable[Finding]] = nothing_found
    scan: Callable[[Source, ReadOptions], Iterable[Finding]] = nothing_found
    model_keys: Callable[[Graph], Mapping[str, Meta]] = no_keys
    edit: Callable[[Source, Graph, Mapping[str, Meta], str], FileLayout] | None = None

    @property
    def endings(self) -> tuple[str, ...]:
        """Ends of names under which a file is written when the format is named: suffixes, longest first, and their
        last parts, as ``.bin`` of ``.whisper.bin``."""
        lasts = (f".{suffix.rpartition('.')[2]}" for suffix in self.suffixes)
        return tuple(sorted({*self.suffixes, *lasts}, key=len, reverse=True))


def shards(tensors: Iterable[tuple[str, StoredTensor]], options: WriteOptions) -> list[list[tuple[str, StoredTensor]]]:
    """Tensors in order, split into shards within the limits of the options; a larger tensor gets its own shard."""
    if options.shard_groups is not None:
        items = iter(tensors)
        return [list(itertools.islice(items, count)) for count in options.shard_groups]
    groups: list[list[tuple[str, StoredTensor]]] = [[]]
    filled = 0
    for name, tensor in tensors:
        full = options.shard_nbytes is not None and filled + tensor.nbytes > options.shard_nbytes
        if groups[-1] and (full or len(groups[-1]) == options.shard_tensors):
            groups.append([])
            filled = 0
        groups[-1].append((name, tensor))
        filled += tensor.nbytes
    return groups
