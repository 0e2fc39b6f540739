"""Layouts: how files arrange the values of a weight differently from us. All are computed when they are read, rows of blocks included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...runtime.arch import Config
from ...runtime.storage import Derived
from ...runtime.tensor import Tensor, exact_nbytes


def take_rows(tensor: Tensor, order: np.ndarray) -> Tensor:
    """Rows of a matrix in another order, whatever they are stored in."""
    row = exact_nbytes(tensor.dtype, tensor.shape[1:])
    assert row is not None, "rows of a weight fill whole blocks"
    inner = tensor.storage

    def read(start: int, stop: int) -> memoryview:
        wanted = order[start // row : stop // row]
        low, high = (int(wanted.min()), int(wanted.max()) + 1) if len(wanted) else (0, 0)
        data = np.frombuffer(inner.read(low * row, high * row), np.uint8).reshape(-1, row)
        return data[wanted - low].reshape(-1).data

    return Tensor(tensor.dtype, (len(order), *tensor.shape[1:]), Derived(row * len(order), row, read, sequential=inner.sequential))


def changed(tensor: Tensor, shape: tuple[int, ...], change: Callable[[np.ndarray], np.ndarray], dtype: str | None = None) -> Tensor:
    """The values, all at once, after `change`; for tensors of plain elements that are not large."""
    kind = tensor.cast(dtype).dtype if dtype else tensor.dtype

    def read(start: int, stop: int) -> memoryview:
        source = tensor.cast(dtype) if dtype else tensor
        return np.ascontiguousarray(change(source.numpy())).reshape(-1).view(np.uint8)[start:stop].data

    size = exact_nbytes(kind, shape)
    assert size is not None
    return Tensor(kind, shape, Derived(size, max(1, size), read, sequential=tensor.storage.sequential))


@dataclass(frozen=True)
class RotaryPairs:
    """Rows of each head in pairs that are turned together, as llama.cpp stores them; ours are in halves. `heads` names the parameter."""

    heads: str

    def join(self, parts: list[Tensor], config: Config) -> Tensor:
        return self._taken(parts[0], config, (-1, 2), 1)

    def split(self, whole: Tensor, config: Config, count: int) -> list[Tensor]:
        return [self._taken(whole, config, (2, -1), 1)]

    def _taken(self, tensor: Tensor, config: Config, cut: tuple[int, int], axis: int) -> Tensor:
        heads = getattr(config, self.heads)
        if tensor.shape[1:]:
            order = np.arange(tensor.shape[0]).reshape(heads, *cut).swapaxes(axis, 2).reshape(-1)
            return take_rows(tensor, order)
        return changed(tensor, tensor.shape, lambda x: x.reshape(heads, *cut).swapaxes(axis, 2).reshape(-1))


@dataclass(frozen=True)
class Plus:
    """A weight that files of one kind store less a constant: Gemma's norms, by which 1 + weight is multiplied."""

    constant: float

    def join(self, parts: list[Tensor], config: Config) -> Tensor:
        return changed(parts[0], parts[0].shape, lambda x: x + np.float32(self.constant), "f32")

    def split(self, whole: Tensor, config: Config, count: int) -> list[Tensor]:
        return [changed(whole, whole.shape, lambda x: x - np.float32(self.constant), "f32")]


class Stacked:
    """One tensor for each expert; ours is all of them along a first dimension."""

    def join(self, parts: list[Tensor], config: Config) -> Tensor:
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
        return Tensor(first.dtype, (len(parts), *first.shape), storage)

    def split(self, whole: Tensor, config: Config, count: int) -> list[Tensor]:
        return [whole[index] for index in range(count)]


class Transposed:
    """A matrix [in, out], as GPT-2 stores it; ours is [out, in]."""

    def join(self, parts: list[Tensor], config: Config) -> Tensor:
        return changed(parts[0], parts[0].shape[::-1], lambda x: x.T)

    def split(self, whole: Tensor, config: Config, count: int) -> list[Tensor]:
        return [changed(whole, whole.shape[::-1], lambda x: x.T)]
