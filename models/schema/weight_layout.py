"""Weight layouts: how file formats arrange a weight's elements. Conversions are lazy, for quantized rows too."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import SAME, Config, Layout, Moved, Whole, sizes
from ...runtime.tensor.element_packing import exact_nbytes
from ...runtime.tensor.storage import Derived, Held
from ...runtime.tensor.stored_tensor import StoredTensor

SPARSE_READ_RATIO = 2
"""If rows are needed from a span more than this many times their number, they are read run by run."""


def take_rows(tensor: StoredTensor, order: np.ndarray, shape: tuple[int, ...] | None = None) -> StoredTensor:
    """Rows (runs along the last dimension) in another order, for any dtype or block type; a matrix unless `shape` is
    passed."""
    row = _row(tensor)
    inner = tensor.storage

    def read(start: int, stop: int) -> memoryview:
        wanted = order[start // row : stop // row]
        low, high = (int(wanted.min()), int(wanted.max()) + 1) if len(wanted) else (0, 0)
        if high - low > SPARSE_READ_RATIO * len(wanted) and not inner.sequential:
            runs = np.split(wanted, np.flatnonzero(np.diff(wanted) != 1) + 1)
            return memoryview(b"".join([inner.read(int(run[0]) * row, (int(run[-1]) + 1) * row) for run in runs]))
        data = np.frombuffer(inner.read(low * row, high * row), np.uint8).reshape(-1, row)
        return data[wanted - low].reshape(-1).data

    storage = Derived(row * len(order), row, read, sequential=inner.sequential)
    return StoredTensor(tensor.dtype, shape or (len(order), tensor.shape[-1]), storage)


def concatenated(pieces: Sequence[StoredTensor], axis: int) -> StoredTensor:
    """Tensors of one dtype concatenated along an axis other than the last."""
    first = pieces[0]
    row = _row(first)
    lengths = [math.prod(piece.shape[axis:-1]) for piece in pieces]
    period = sum(lengths)
    starts = [sum(lengths[:index]) for index in range(len(pieces))]
    shape = (*first.shape[:axis], sum(piece.shape[axis] for piece in pieces), *first.shape[axis + 1 :])
    size = math.prod(shape[:-1]) * row

    def read(start: int, stop: int) -> bytes:
        parts, at, end = [], start // row, stop // row
        while at < end:
            turn, place = divmod(at, period)
            index = max(number for number, begin in enumerate(starts) if begin <= place)
            count = min(starts[index] + lengths[index] - place, end - at)
            begin = turn * lengths[index] + place - starts[index]
            parts.append(bytes(pieces[index].storage.read(begin * row, (begin + count) * row)))
            at += count
        return b"".join(parts)

    return StoredTensor(first.dtype, shape, Derived(size, row, read, sequential=first.storage.sequential))


def _row(tensor: StoredTensor) -> int:
    row = exact_nbytes(tensor.dtype, tensor.shape[-1:])
    assert row is not None, "rows of a weight fill whole blocks"
    return row


def changed(
    tensor: StoredTensor, shape: tuple[int, ...], change: Callable[[np.ndarray], np.ndarray], dtype: str | None = None
) -> StoredTensor:
    """The elements after `change`, computed all at once; for small tensors. Blocks are dequantized first."""
    tensor = tensor if tensor.qtype is None else tensor.dequantize()
    kind = tensor.cast(dtype).dtype if dtype else tensor.dtype

    def read(start: int, stop: int) -> memoryview:
        source = tensor.cast(dtype) if dtype else tensor
        return np.ascontiguousarray(change(source.numpy())).reshape(-1).view(np.uint8)[start:stop].data

    size = exact_nbytes(kind, shape)
    assert size is not None
    return StoredTensor(kind, shape, Derived(size, max(1, size), read, sequential=tensor.storage.sequential))


@dataclass(frozen=True)
class Ordered(Whole):
    """Reordered rows: row i of the graph's weight is the file's row ``order(config)[i]``.

    Attributes:
        order: returns int64 [rows]; called only for tensors with that many rows.
        rows: the number of rows, as a shape expression.
    """

    order: Callable[[Config], np.ndarray]
    rows: str

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        self._check(parts[0], config)
        return _ordered(parts[0], self.order(config).reshape(-1))

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        self._check(whole, config)
        return [_ordered(whole, np.argsort(self.order(config).reshape(-1)))]

    def _check(self, tensor: StoredTensor, config: Config) -> None:
        (rows,) = sizes((self.rows,), config)
        if tensor.shape[0] != rows:
            raise ValueError(f"a tensor {list(tensor.shape)} does not have {rows} rows")


def _ordered(tensor: StoredTensor, order: np.ndarray) -> StoredTensor:
    if np.array_equal(order, np.arange(len(order))):
        return tensor
    if not tensor.shape[1:]:
        return changed(tensor, tensor.shape, lambda x: x[order])
    runs = math.prod(tensor.shape[1:-1])
    return take_rows(tensor, (order[:, None] * runs + np.arange(runs)).reshape(-1), tensor.shape)


@dataclass(frozen=True)
class OrderedColumns(Whole):
    """Reordered columns of a matrix: column i of the graph's weight is the file's column ``order(config)[i]``. Blocks
    are dequantized unless the order is the file's.

    Attributes:
        order: returns int64 [columns]; called only for tensors with that many columns.
        columns: the number of columns, as a shape expression.
    """

    order: Callable[[Config], np.ndarray]
    columns: str

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        (columns,) = sizes((self.columns,), config)
        if parts[0].shape[-1:] != (columns,):
            raise ValueError(f"a tensor {list(parts[0].shape)} does not have {columns} columns")
        return _with_columns(parts[0], self.order(config))

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [_with_columns(whole, np.argsort(self.order(config)))]


def _with_columns(tensor: StoredTensor, order: np.ndarray) -> StoredTensor:
    if np.array_equal(order, np.arange(len(order))):
        return tensor
    return changed(tensor, tensor.shape, lambda x: x[..., order])


@dataclass(frozen=True)
class Composed(Whole):
    """Two layouts, in the order in which they lead from the file to the graph."""

    first: Layout
    then: Layout

    @property
    def computed(self) -> bool:
        return self.first.computed or self.then.computed

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        return self.then.join([self.first.join(parts, config)], config)

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        (inner,) = self.then.split(whole, config, 1)
        return self.first.split(inner, config, count)


def rotary_pairs(heads: str) -> Ordered:
    """Query or key rows with interleaved rotary pairs, as llama.cpp stores them; the graph uses half-split pairs.
    `heads` names the hyper-parameter."""

    def order(config: Config) -> np.ndarray:
        if config.head_dim % 2:
            raise ValueError(f"rotary embedding needs an even number of elements per head, not {config.head_dim}")
        count = getattr(config, heads)
        return np.arange(count * config.head_dim).reshape(count, -1, 2).swapaxes(1, 2)

    return Ordered(order, f"{heads}*head_dim")


def grouped(config: Config) -> np.ndarray:
    """Fused queries, keys and values grouped by KV head (queries, key, value of each); the graph has all queries, keys,
    values."""
    rows = np.arange((config.heads + 2 * config.kv_heads) * config.head_dim).reshape(
        config.kv_heads, -1, config.head_dim
    )
    return np.concatenate([rows[:, :-2].reshape(-1), rows[:, -2].reshape(-1), rows[:, -1].reshape(-1)])


GROUPED = Ordered(grouped, "fused")


@dataclass(frozen=True)
class Plus(Whole):
    """A weight that one format stores less a constant: Gemma's norms, which multiply by 1 + weight."""

    constant: float

    @property
    def computed(self) -> bool:
        return True

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        return changed(parts[0], parts[0].shape, lambda x: x + np.float32(self.constant), "f32")

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [changed(whole, whole.shape, lambda x: x - np.float32(self.constant), "f32")]


@dataclass(frozen=True)
class Changed(Whole):
    """A small f32 weight stored through a function: `into` maps file to graph, `back` graph to file, both in f64."""

    into: Callable[[np.ndarray], np.ndarray]
    back: Callable[[np.ndarray], np.ndarray]

    @property
    def computed(self) -> bool:
        return True

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        return _computed(parts[0], self.into)

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [_computed(whole, self.back)]


def _computed(tensor: StoredTensor, change: Callable[[np.ndarray], np.ndarray]) -> StoredTensor:
    return changed(tensor, tensor.shape, lambda x: change(x.astype(np.float64)).astype(np.float32), "f32")


@dataclass(frozen=True)
class Reshaped(Whole):
    """The same elements in a file's shape and in the graph's, both as shape expressions, then a further layout."""

    graph_shape: tuple[str | int, ...]
    file_shape: tuple[str | int, ...]
    then: Layout = SAME

    @property
    def computed(self) -> bool:
        return self.then.computed

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        return self.then.join([_reshaped(part, sizes(self.graph_shape, config)) for part in parts], config)

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [_reshaped(part, sizes(self.file_shape, config)) for part in self.then.split(whole, config, count)]


def _reshaped(tensor: StoredTensor, shape: tuple[int, ...]) -> StoredTensor:
    return StoredTensor(tensor.dtype, shape, tensor.storage) if math.prod(shape) == math.prod(tensor.shape) else tensor


class Stacked(Whole):
    """One tensor per expert, stacked along a first dimension in the graph."""

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        first = parts[0]
        size = first.nbytes
        if any(part.shape != first.shape or part.dtype is not first.dtype for part in parts):
            raise ValueError("experts of different shapes or dtypes")

        def read(start: int, stop: int) -> memoryview:
            pieces = []
            for index in range(start // size, -(-stop // size)):
                low, high = max(0, start - index * size), min(size, stop - index * size)
                pieces.append(bytes(parts[index].storage.read(low, high)))
            return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))

        storage = Derived(size * len(parts), first.storage.step, read, sequential=first.storage.sequential)
        return StoredTensor(first.dtype, (len(parts), *first.shape), storage)

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [whole[index] for index in range(count)]


@dataclass(frozen=True)
class Elements(Whole):
    """Tensors of one element and this shape in the file; an f32 vector of all of them in the graph."""

    shape: tuple[int, ...]

    @property
    def scalars(self) -> bool:
        return True

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        if any(part.count != 1 for part in parts):
            raise ValueError("a tensor of one element is expected")
        first = parts[0]
        vector = StoredTensor(first.dtype, (1,), first.storage)

        def all_of(_: np.ndarray) -> np.ndarray:
            return np.concatenate([part.cast("f32").numpy().reshape(1) for part in parts])

        return changed(vector, (len(parts),), all_of, "f32")

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [StoredTensor.of(element.reshape(self.shape)) for element in whole.cast("f32").numpy()]


@dataclass(frozen=True)
class Permuted(Whole):
    """A small weight with permuted axes: axis i of the graph's weight is the file's axis ``order[i]``."""

    order: tuple[int, ...]

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        return _permuted(parts[0], self.order)

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [_permuted(whole, tuple(np.argsort(self.order)))]


def _permuted(tensor: StoredTensor, order: Sequence[int]) -> StoredTensor:
    if len(order) != len(tensor.shape):
        return tensor
    return changed(tensor, tuple(tensor.shape[axis] for axis in order), lambda x: x.transpose(order))


class Transposed(Whole):
    """A matrix [in, out], as GPT-2 stores it; [out, in] in the graph. Vectors are unchanged."""

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        return self._transposed(parts[0])

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [self._transposed(whole)]

    def _transposed(self, tensor: StoredTensor) -> StoredTensor:
        return changed(tensor, tensor.shape[::-1], lambda x: x.T) if tensor.shape[1:] else tensor


TRANSPOSED = Transposed()


@dataclass(frozen=True)
class RowsFrom(Whole):
    """A matrix whose first ``count(config)`` rows are not stored; they are zeros in the graph."""

    count: Callable[[Config], int]

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        part, count = parts[0], self.count(config)
        zeros = StoredTensor(part.dtype, (count, *part.shape[1:]), Held(bytes(count * _row(part))))
        return concatenated([zeros, part], 0)

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [whole[self.count(config) :]]


class Joined(Whole):
    """Rows of several tensors of equal size, one after the other in the graph's weight."""

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        first = parts[0]
        if any(part.shape != first.shape for part in parts):
            raise ValueError(f"tensors of the shapes {[list(part.shape) for part in parts]} are not equal parts")
        if first.shape[1:] and len({part.dtype.name for part in parts}) == 1:
            return concatenated(parts, 0)
        shape = (len(parts) * first.shape[0], *first.shape[1:])
        others = parts[1:]
        return changed(first, shape, lambda x: np.concatenate([x, *(part.numpy().astype(x.dtype) for part in others)]))

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        length = whole.shape[0] // count
        return [whole[i * length : (i + 1) * length] for i in range(count)]


JOINED = Joined()


@dataclass(frozen=True)
class LeadingAxes(Whole):
    """A weight whose shape in the graph has `count` more axes of length 1 in front than in the file."""

    count: int

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        return StoredTensor(parts[0].dtype, (1,) * self.count + parts[0].shape, parts[0].storage)

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [StoredTensor(whole.dtype, whole.shape[self.count :], whole.storage)]


@dataclass(frozen=True)
class Expanded(Whole):
    """A vector that files store with `rank` dimensions, all but the last one of length 1."""

    rank: int

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        tensor = parts[0]
        if len(tensor.shape) != self.rank or any(length != 1 for length in tensor.shape[:-1]):
            raise ValueError(f"a tensor {list(tensor.shape)} is not a vector of rank {self.rank}")
        return StoredTensor(tensor.dtype, tensor.shape[-1:], tensor.storage)

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [StoredTensor(whole.dtype, (*(1,) * (self.rank - 1), *whole.shape), whole.storage)]


@dataclass(frozen=True)
class Windows(Whole):
    """The kernel of a convolution of `side` x `side` that files store as a matrix; other tensors are unchanged."""

    side: int

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        tensor = parts[0]
        if len(tensor.shape) == 1:
            return tensor
        if len(tensor.shape) != 2 or tensor.shape[1] % self.side**2:
            raise ValueError(f"a tensor {list(tensor.shape)} is not a layer on windows of {self.side} x {self.side}")
        shape = (tensor.shape[0], tensor.shape[1] // self.side**2, self.side, self.side)
        return StoredTensor(tensor.dtype, shape, tensor.storage)

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        if len(whole.shape) == 1:
            return [whole]
        return [StoredTensor(whole.dtype, (whole.shape[0], math.prod(whole.shape[1:])), whole.storage)]


class Flat(Whole):
    """A vector [in] in some files; a matrix [1, in] in the graph."""

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        return StoredTensor(parts[0].dtype, (1, *parts[0].shape[-1:]), parts[0].storage)

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [whole]


@dataclass(frozen=True)
class Chunk(Moved):
    """One of `count` equal parts of a tensor along an axis, for example of fused gate and up projections; another
    binding has the next part."""

    index: int
    count: int = 2
    axis: int = 0

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        whole = parts[0]
        if len(whole.shape) <= self.axis + 1 or whole.shape[self.axis] % self.count:
            raise ValueError(f"a tensor {list(whole.shape)} cannot be cut into {self.count} equal parts of rows")
        length = whole.shape[self.axis] // self.count
        shape = (*whole.shape[: self.axis], length, *whole.shape[self.axis + 1 :])
        rows = np.arange(math.prod(whole.shape[:-1])).reshape(whole.shape[:-1])
        return take_rows(
            whole, rows.take(range(self.index * length, (self.index + 1) * length), self.axis).reshape(-1), shape
        )

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [whole]

    def together(self, pieces: Sequence[StoredTensor]) -> StoredTensor:
        """The tensor with all parts."""
        return concatenated(pieces, self.axis)
