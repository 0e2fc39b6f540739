"""Batches on several threads: each batch runs on a thread of its own, results come in order."""

from __future__ import annotations

import contextvars
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Batch = TypeVar("Batch")
Result = TypeVar("Result")
PREFETCH = 2
"""Batches that are queued for each thread."""


def map_batches(
    compute: Callable[[Batch], Result], batches: Iterable[Batch], threads: int
) -> Iterator[tuple[Batch, Result]]:
    """Batches and what `compute` makes of each, in order, `threads` of them at a time.

    An exception of a batch is raised when its turn comes; later batches are not started.
    """
    pending = iter(batches)
    if threads == 1:
        yield from ((batch, compute(batch)) for batch in pending)
        return
    pool = ThreadPoolExecutor(threads)
    running: deque[tuple[Batch, Future[Result]]] = deque()

    def start(count: int) -> None:
        for batch in itertools.islice(pending, count):
            running.append((batch, pool.submit(contextvars.copy_context().run, compute, batch)))

    try:
        start(threads * PREFETCH)
        while running:
            batch, future = running.popleft()
            result = future.result()
            start(1)
            yield batch, result
    finally:
        pool.shutdown(cancel_futures=True)
