"""Samplers: in which order the items of a dataset are read. Equal seeds give torch's order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import numpy as np

from ...runtime.base.errors import UsageError
from ...tensors.operations.random import GENERATOR, Generator, randperm

Item = TypeVar("Item", covariant=True)
BLOCK = 32
"""Numbers that are drawn at a time with replacement."""


class Sampler(Generic[Item]):
    """Base of samplers: a subclass has ``__iter__``, which gives numbers of items."""

    def __init__(self, data_source: Any = None) -> None:
        """Nothing is kept."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")


class SequentialSampler(Sampler[int]):
    """All items in their order."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """All items in random order; or `num_samples` of them, drawn with replacement."""

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self.num_samples = len(data_source) if num_samples is None else num_samples
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        generator = self.generator
        if generator is None:
            generator = Generator().manual_seed(seed_of(GENERATOR))
        count = len(self.data_source)
        if self.replacement:
            yield from _drawn_below(generator, count, self.num_samples)
            return
        for start in range(0, self.num_samples + 1, max(1, count)):
            yield from randperm(count, generator=generator).tolist()[: self.num_samples - start]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """Chosen items in random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for index in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[index]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Items drawn with probabilities in proportion to weights."""

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Generator | None = None
    ) -> None:
        self.weights = np.asarray(weights, np.float64)
        if self.weights.ndim != 1 or not np.isfinite(self.weights).all() or (self.weights < 0).any():
            raise UsageError("E-DATA-WEIGHTS", None, "weights of items are not a list of finite numbers from 0 on")
        if not replacement and num_samples > np.count_nonzero(self.weights):
            raise UsageError("E-DATA-WEIGHTS", None, f"{num_samples} different items are drawn of fewer with a weight")
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        source = GENERATOR if self.generator is None else self.generator
        with source.lock():
            drawn = source.uniform(self.num_samples if self.replacement else len(self.weights), np.dtype(np.float64))
        if self.replacement:
            bounds = np.cumsum(self.weights / self.weights.sum())
            bounds[-1] = 1
            return iter(np.searchsorted(bounds, drawn, side="right").tolist())
        with np.errstate(divide="ignore"):
            keys = -np.log1p(-drawn) / self.weights
        return iter(np.argsort(keys, kind="stable")[: self.num_samples].tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` numbers of another sampler."""

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool) -> None:
        if batch_size < 1:
            raise UsageError("E-OPTION", None, f"batches of {batch_size} items are not possible", expected="at least 1")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


def seed_of(generator: Generator) -> int:
    """A seed that is drawn as torch draws one: 63 random bits."""
    with generator.lock():
        return int(generator.wide_bits(1)[0] & np.uint64((1 << 63) - 1))


def _drawn_below(generator: Generator, high: int, count: int) -> Iterator[int]:
    """Numbers below `high`, in torch's blocks of 32, each drawn when its first number is asked for."""
    for start in range(0, count, BLOCK):
        with generator.lock():
            drawn = generator.bits(min(BLOCK, count - start)) % np.uint32(high)
        yield from drawn.tolist()
