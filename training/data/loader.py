"""DataLoader: batches of a dataset, in order or shuffled, read in advance by threads where that is asked for."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...tensors.core.tensor import Tensor
from ...tensors.operations.random import GENERATOR, Generator
from .collate import as_tensors, default_collate
from .dataset import Stacked, Subset, as_dataset
from .samplers import BatchSampler, RandomSampler, SequentialSampler, seed_of

AHEAD = 2
"""Batches that each thread reads in advance."""


class DataLoader:
    """Batches of a dataset. For equal seeds the order is that of torch's loader.

    Each iteration draws a new order from the generator. `len` is the number of batches; TypeError where a sampler or a
    dataset without `len` does not tell it.

    Args:
        dataset: a dataset of this package, of torch or Hugging Face, a list, an array (of rows), or a dictionary of
            arrays.
        batch_size: items of a batch; None for items as they are.
        shuffle: read items in random order.
        sampler: numbers of items, in place of `shuffle`.
        num_workers: threads that read batches in advance; 0 for none. The order does not depend on it.
        collate_fn: makes a batch of a list of items; `default_collate` if it is None.
        drop_last: leave out a last batch that is smaller than the others.
        options: ``generator``, of random numbers, the default one if it is None; ``batch_sampler``, lists of numbers
            of items. Torch's settings of processes and of memory are taken without effect.

    Raises UsageError for options that contradict each other.
    """

    _WITHOUT_EFFECT = frozenset(
        (
            "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "prefetch_factor",
            "persistent_workers", "pin_memory_device", "in_order",
        )
    )  # fmt: skip

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        sampler: Iterable[int] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        **options: Any,
    ) -> None:
        self.dataset = as_dataset(dataset)
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.collate_fn = collate_fn
        self.drop_last = drop_last
        self.generator: Generator | None = options.pop("generator", None)
        self.batch_sampler: Iterable[Sequence[int]] | None = options.pop("batch_sampler", None)
        unknown = sorted(set(options) - self._WITHOUT_EFFECT)
        if unknown:
            raise UsageError("E-OPTION", None, f"DataLoader does not have the option {unknown[0]!r}")
        if num_workers < 0:
            raise UsageError("E-OPTION", None, f"num_workers is {num_workers}", expected="at least 0")
        self._by_number = hasattr(self.dataset, "__getitem__") and hasattr(self.dataset, "__len__")
        given = [name for name, one in (("shuffle", shuffle), ("sampler", sampler)) if one]
        if self.batch_sampler is not None and (batch_size != 1 or drop_last):
            given += ["batch_size or drop_last"]
        if len(given) + (self.batch_sampler is not None) > 1 or (given and not self._by_number):
            what = "batch_sampler" if self.batch_sampler is not None else "sampler"
            why = f"{' and '.join(given)} cannot be given with " + (what if self._by_number else "an iterable dataset")
            raise UsageError("E-OPTION", None, why)
        self.sampler: Iterable[Any] | None = sampler
        if sampler is None and self._by_number:
            shuffled = RandomSampler(self.dataset, generator=self.generator) if shuffle else None
            self.sampler = shuffled or SequentialSampler(self.dataset)
        if self.batch_sampler is None and batch_size is not None and self.sampler is not None:
            self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)

    def __len__(self) -> int:
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]
        count = len(self.dataset)
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        return self.after(0)

    def after(self, count: int) -> Iterator[Any]:
        """An iteration without its first batches, which are not read where items have numbers."""
        seed_of(self.generator or GENERATOR)  # torch draws a seed for its processes here
        if not self._by_number:
            return itertools.islice(self._of_iterable(), count, None)
        groups = self.sampler if self.batch_sampler is None else self.batch_sampler
        assert groups is not None
        remaining = iter(groups)
        # samplers draw their order with the first group: now, so that nothing else draws numbers before it
        begun = list(itertools.islice(remaining, max(count, 1)))
        left = itertools.chain(begun[count:], remaining)
        return self._in_threads(left) if self.num_workers else map(self._batch, left)

    def _batch(self, group: Any) -> Any:
        """The batch of a list of numbers of items, or one item."""
        if self.batch_sampler is None:
            item = self.dataset[group]
            return as_tensors(item) if self.collate_fn is None else self.collate_fn(item)
        if self.collate_fn is None:
            found = _whole_batch(self.dataset, group)
            if found is not None:
                return found
        several = getattr(self.dataset, "__getitems__", None)
        items = several(list(group)) if callable(several) else [self.dataset[each] for each in group]
        return (self.collate_fn or default_collate)(items)

    def _of_iterable(self) -> Iterator[Any]:
        items = iter(self.dataset)
        if self.batch_size is None:
            yield from map(as_tensors if self.collate_fn is None else self.collate_fn, items)
            return
        collate = self.collate_fn or default_collate
        while group := list(itertools.islice(items, self.batch_size)):
            if len(group) == self.batch_size or not self.drop_last:
                yield collate(group)

    def _in_threads(self, groups: Iterator[Any]) -> Iterator[Any]:
        pending: collections.deque[Future[Any]] = collections.deque()
        with ThreadPoolExecutor(self.num_workers, "candle-data") as pool:
            try:
                for group in groups:
                    pending.append(pool.submit(self._batch, group))
                    if len(pending) >= AHEAD * self.num_workers:
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
            finally:
                for each in pending:
                    each.cancel()


def in_order(loader: Any) -> Any:
    """A loader of this package or of torch that reads items in their order; others as they are."""
    sampler = getattr(loader, "sampler", None)
    if sampler is None or type(sampler).__name__ == "SequentialSampler" or not hasattr(loader, "dataset"):
        return loader
    size, collate = loader.batch_size, loader.collate_fn
    return DataLoader(loader.dataset, size, collate_fn=collate, drop_last=loader.drop_last)


def get_worker_info() -> None:
    """Always None: an iterable dataset is read by one process."""


def _whole_batch(dataset: Any, group: Sequence[int]) -> Any:
    """The batch of a dataset that is arrays, without a detour over its items; None for other datasets."""
    while isinstance(dataset, Subset):
        dataset, group = dataset.dataset, [dataset.indices[each] for each in group]
    if isinstance(dataset, Stacked):
        return dataset.batch(group)
    if isinstance(dataset, Tensor | np.ndarray):
        rows = dataset.array() if isinstance(dataset, Tensor) else dataset
        return as_tensors(rows[np.asarray(group, np.int64)]) if rows.ndim and rows.dtype.kind not in "OSU" else None
    return None
