"""Layouts of fused tensors: queries, keys and values; latent keys and values; gate and up projections."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import Config, Moved, Whole
from ...runtime.tensor.element_packing import exact_nbytes
from ...runtime.tensor.storage import Derived
from ...runtime.tensor.stored_tensor import StoredTensor
from ...runtime.tensor.transposed import transposed
from .weight_layout import Chunk, changed, concatenated, take_rows

Span = Callable[[Config], tuple[int, int]]


class FusedRows(Moved):
    """Base of layouts that take a range of rows of a matrix or vector. Other bindings have the remaining rows, in the
    file's order."""

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [whole]

    def together(self, pieces: Sequence[StoredTensor]) -> StoredTensor:
        """The tensor with all rows; in f32 where pieces differ in dtype, or are vectors of a dtype whose single
        elements fill no bytes."""
        vectors = not pieces[0].shape[1:]
        if len({piece.dtype for piece in pieces}) > 1 or (vectors and exact_nbytes(pieces[0].dtype, (1,)) is None):
            pieces = [piece.dequantize() for piece in pieces]
        if not vectors:
            return concatenated(pieces, 0)
        columns = [StoredTensor(piece.dtype, (piece.shape[0], 1), piece.storage) for piece in pieces]
        joined = concatenated(columns, 0)
        return StoredTensor(joined.dtype, joined.shape[:1], joined.storage)


@dataclass(frozen=True)
class Rows(FusedRows):
    """A range of rows that follows from the configuration."""

    span: Span

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        start, stop = self.span(config)
        if stop > parts[0].shape[0]:
            raise ValueError(f"a tensor {list(parts[0].shape)} has no row {stop - 1}")
        return parts[0][start:stop]


@dataclass(frozen=True)
class RowShare(FusedRows):
    """Rows `first` to `last` of a tensor, counted in shares of its rows, of which there are `of`."""

    first: int
    last: int
    of: int

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        rows = parts[0].shape[0]
        if rows % self.of:
            raise ValueError(f"{rows} rows are not divisible by {self.of}")
        return parts[0][rows * self.first // self.of : rows * self.last // self.of]


def qkv_rows(part: str) -> Rows:
    """Rows of the queries, keys or values (`part`: q, k, v) of a fused matrix that stores them in this order."""

    def span(config: Config) -> tuple[int, int]:
        counts = (config.heads, config.kv_heads, config.kv_heads)
        index = "qkv".index(part)
        start = sum(counts[:index]) * config.head_dim
        return start, start + counts[index] * config.head_dim

    return Rows(span)


@dataclass(frozen=True)
class RowsOfGroups(Moved):
    """Rows of a matrix that stores the rows of several weights group by group.

    Other bindings have the remaining rows of each group, in the file's order.

    Attributes:
        parts: lengths of the pieces of a group, one list for each weight that the file's tensor stores.
        index: which of these weights; it has the first piece of all groups, then the second piece of all groups ...
        groups: the hyper-parameter with the number of groups.
    """

    parts: Callable[[Config], tuple[tuple[int, ...], ...]]
    index: int
    groups: str

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        lengths, groups = self.parts(config), getattr(config, self.groups)
        width = sum(map(sum, lengths))
        if parts[0].shape[:1] != (groups * width,) or len(parts[0].shape) != 2:
            raise ValueError(f"a tensor {list(parts[0].shape)} does not have {groups} groups of {width} rows")
        start = sum(map(sum, lengths[: self.index]))
        rows = np.arange(groups * width).reshape(groups, width)[:, start : start + sum(lengths[self.index])]
        return take_rows(parts[0], _by_piece(rows, lengths[self.index]))

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        lengths, groups = self.parts(config)[self.index], getattr(config, self.groups)
        order = np.argsort(_by_piece(np.arange(whole.shape[0]).reshape(groups, -1), lengths))
        return [take_rows(whole, order, (groups, sum(lengths), whole.shape[1]))]

    def together(self, pieces: Sequence[StoredTensor]) -> StoredTensor:
        """The tensor with all rows."""
        grouped = concatenated(pieces, 1)
        return StoredTensor(grouped.dtype, (grouped.shape[0] * grouped.shape[1], grouped.shape[2]), grouped.storage)


def _by_piece(rows: np.ndarray, lengths: tuple[int, ...]) -> np.ndarray:
    """Rows [groups, sum of lengths] piece by piece: the first piece of all groups first."""
    return np.concatenate([piece.reshape(-1) for piece in np.split(rows, np.cumsum(lengths)[:-1], axis=1)])


@dataclass(frozen=True)
class Latent(Moved):
    """Keys or values of all heads from a fused latent projection [heads x (nope + value_dim), rank]: each head's keys,
    then its values.

    In the graph, values are [heads, value_dim, rank] and keys are [heads, rank, nope], transposed to project queries to
    latents.
    """

    keys: bool

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        heads, nope, value, rank = config.heads, config.nope, config.value_dim, config.rank
        if parts[0].shape != (heads * (nope + value), rank):
            raise ValueError(
                f"a tensor {list(parts[0].shape)} does not have keys and values of {heads} heads from {rank} elements"
            )
        if not self.keys:
            rows = np.arange(heads * (nope + value)).reshape(heads, -1)[:, nope:]
            return take_rows(parts[0], rows.reshape(-1), (heads, value, rank))
        return changed(
            _dequantized(parts[0]),
            (heads, rank, nope),
            lambda x: x.reshape(heads, nope + value, rank)[:, :nope].transpose(0, 2, 1),
        )

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        heads, rank, nope = whole.shape
        return [
            changed(_dequantized(whole), (heads, nope, rank), lambda x: x.transpose(0, 2, 1)) if self.keys else whole
        ]

    def together(self, pieces: Sequence[StoredTensor]) -> StoredTensor:
        """The fused matrix of keys and values."""
        alike = pieces if len({piece.dtype for piece in pieces}) == 1 else [piece.dequantize() for piece in pieces]
        both = concatenated(alike, 1)
        return StoredTensor(both.dtype, (both.shape[0] * both.shape[1], both.shape[2]), both.storage)


def _dequantized(tensor: StoredTensor) -> StoredTensor:
    """Blocks dequantized to f32: they run along rows and cannot be transposed."""
    return tensor if tensor.qtype is None else tensor.dequantize()


class TransposedExperts(Whole):
    """Expert matrices [experts, in, out], as gpt-oss stores them; [experts, out, in] in the graph. Blocks stay
    quantized."""

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        return transposed(parts[0])

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [transposed(whole)]


@dataclass(frozen=True)
class HalfColumns(Moved):
    """The first or second half of the columns of expert matrices [experts, in, 2 x out]: gate and up projections. The
    graph has [experts, out, in]. Blocks stay quantized."""

    index: int

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        return Chunk(self.index, axis=1).join([transposed(parts[0])], config)

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [whole]

    def together(self, pieces: Sequence[StoredTensor]) -> StoredTensor:
        """The tensor with both halves."""
        return transposed(concatenated(pieces, 1))


@dataclass(frozen=True)
class EveryOther(Moved):
    """Every other column of expert matrices [experts, in, out] or vectors [experts, out]: gate and up projections,
    interleaved."""

    index: int

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        whole = parts[0]
        if len(whole.shape) not in (2, 3) or whole.shape[-1] % 2:
            raise ValueError(f"a tensor {list(whole.shape)} cannot be cut into two interleaved halves")
        experts, width = whole.shape[0], whole.shape[-1] // 2
        if len(whole.shape) == 2:
            return changed(_dequantized(whole), (experts, width), lambda x: x[:, self.index :: 2])
        transposed_whole = transposed(whole)
        size = transposed_whole.nbytes // experts

        def read(start: int, stop: int) -> memoryview:
            first, last = start * 2 // size, stop * 2 // size
            data = np.frombuffer(transposed_whole.storage.read(first * size, last * size), np.uint8).reshape(
                last - first, width, 2, -1
            )
            return np.ascontiguousarray(data[:, :, self.index]).reshape(-1).data

        storage = Derived(transposed_whole.nbytes // 2, size // 2, read, sequential=transposed_whole.storage.sequential)
        return StoredTensor(transposed_whole.dtype, (experts, width, whole.shape[1]), storage)

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [whole]

    def together(self, pieces: Sequence[StoredTensor]) -> StoredTensor:
        """The tensor with both, interleaved."""
        one, other = pieces
        experts, width = one.shape[:2]
        if len(one.shape) == 2:
            return changed(one, (experts, width * 2), lambda x: np.stack([x, other.cast(one.dtype).numpy()], axis=-1))
        size = one.nbytes // experts

        def read(start: int, stop: int) -> memoryview:
            first, last = start // (2 * size), stop // (2 * size)
            parts = [
                np.frombuffer(piece.storage.read(first * size, last * size), np.uint8).reshape(last - first, width, -1)
                for piece in pieces
            ]
            return np.stack(parts, axis=2).reshape(-1).data

        storage = Derived(2 * one.nbytes, 2 * size, read, sequential=one.storage.sequential)
        return transposed(StoredTensor(one.dtype, (experts, width * 2, one.shape[2]), storage))
