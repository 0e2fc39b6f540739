"""Datasets: items by number. Anything with ``__getitem__`` and ``__len__`` is one, of torch and Hugging Face too."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ...tensors.core.conversion import array_of
from ...tensors.core.tensor import Tensor
from ...tensors.operations.creation import made
from ...tensors.operations.random import GENERATOR, Generator, randperm

Item = TypeVar("Item", covariant=True)


class Dataset(Generic[Item]):
    """Base of datasets: a subclass has ``__getitem__`` of a number, and ``__len__``."""

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")

    def __add__(self, other: Any) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Generic[Item]):
    """Base of datasets that are read from start to end: a subclass has ``__iter__``."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")


class Stacked(Dataset[Any]):
    """Base of datasets that give several items at once."""

    def batch(self, indices: Sequence[int]) -> Any:
        """Items, stacked as `default_collate` stacks them."""
        raise NotImplementedError(f"{type(self).__name__} has no batch")


class TensorDataset(Stacked):
    """Rows of tensors or arrays of equal length: item i is the tuple of their rows i.

    Raises UsageError if lengths differ.
    """

    def __init__(self, *tensors: Any) -> None:
        self.arrays = [array_of(tensor) for tensor in tensors]
        lengths = {len(array) if array.ndim else None for array in self.arrays}
        if len(lengths) != 1 or None in lengths:
            shapes = ", ".join(str(list(array.shape)) for array in self.arrays) or "none"
            raise UsageError("E-DATA-LENGTH", None, f"arrays of shapes {shapes} do not have rows in common")

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The arrays as tensors."""
        return tuple(made(array) for array in self.arrays)

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(made(np.asarray(array[index])) for array in self.arrays)

    def __len__(self) -> int:
        return len(self.arrays[0])

    def batch(self, indices: Sequence[int]) -> list[Tensor]:
        """Several items at once, stacked."""
        places = np.asarray(indices, np.int64)
        return [made(array[places]) for array in self.arrays]


class Columns(Stacked):
    """Arrays by name, of equal length: item i is a dictionary of their rows i."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._names = list(columns)
        self._rows = TensorDataset(*columns.values())

    def __getitem__(self, index: Any) -> dict[str, Tensor]:
        return dict(zip(self._names, self._rows[index], strict=True))

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """Several items at once, stacked."""
        return dict(zip(self._names, self._rows.batch(indices), strict=True))


class Subset(Dataset[Any]):
    """The items of a dataset that `indices` name, in their order."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset[Any]):
    """Datasets one after another."""

    def __init__(self, datasets: Sequence[Any]) -> None:
        self.datasets = list(datasets)
        self.cumulative_sizes = list(itertools.accumulate(len(dataset) for dataset in self.datasets))

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"item {index} of {len(self)}")
        place = index % len(self)
        which = bisect.bisect_right(self.cumulative_sizes, place)
        return self.datasets[which][place - (self.cumulative_sizes[which - 1] if which else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1] if self.cumulative_sizes else 0


def random_split(dataset: Any, lengths: Sequence[int | float], generator: Generator | None = None) -> list[Subset]:
    """Parts of a dataset that have no item in common, chosen as torch chooses them for equal seeds.

    Args:
        lengths: of the parts, as numbers of items or as fractions that sum to 1.

    Raises UsageError if the lengths do not sum to the dataset's, or to 1.
    """
    count = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        shares = [math.floor(count * length) for length in lengths]
        for index in range(count - sum(shares)):
            shares[index % len(shares)] += 1
    else:
        shares = [int(length) for length in lengths]
    if sum(shares) != count or min(shares, default=0) < 0:
        why = f"parts of {list(lengths)} do not make up a dataset of {counted(count, 'item')}"
        raise UsageError(
            "E-DATA-LENGTH", None, why, expected=f"lengths that sum to {count}, or fractions that sum to 1"
        )
    order = randperm(count, generator=GENERATOR if generator is None else generator).tolist()
    ends = itertools.accumulate(shares)
    return [Subset(dataset, order[end - share : end]) for share, end in zip(shares, ends, strict=True)]


def as_dataset(data: Any) -> Any:
    """Data as it is given: a dataset as it is, a dictionary of arrays as `Columns`, rows of an array or a tensor.

    Raises UsageError for what has neither items by number nor an iterator.
    """
    if isinstance(data, Mapping):
        return Columns(data)
    if hasattr(data, "__iter__") or (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        return data
    why = f"{type(data).__name__} is not a dataset"
    raise UsageError("E-DATA-TYPE", None, why, expected="an object with __getitem__ and __len__, or with __iter__")
