"""Batches on several threads: order, how many are held, and exceptions."""

import contextvars
import threading

import pytest
from candle_convert.runtime.execute.batch_threads import PREFETCH, map_batches

CHOSEN = contextvars.ContextVar("chosen", default="none")


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_order(threads):
    taken = []

    def batches():
        for number in range(20):
            taken.append(number)
            yield number

    CHOSEN.set("here")
    for batch, (square, seen) in map_batches(lambda number: (number**2, CHOSEN.get()), batches(), threads):
        assert (square, seen) == (batch**2, "here")
        assert len(taken) <= batch + 1 + threads * PREFETCH
    assert taken == list(range(20))


def test_threads_run_at_the_same_time():
    barrier = threading.Barrier(2, timeout=30)
    assert sorted(batch for batch, _ in map_batches(lambda _: barrier.wait(), range(8), 2)) == list(range(8))


@pytest.mark.parametrize("threads", [1, 2])
def test_an_exception_ends_it(threads):
    started = []

    def compute(batch):
        started.append(batch)
        if batch == 3:
            raise ValueError("broken")
        return batch

    with pytest.raises(ValueError, match="broken"):
        list(map_batches(compute, range(100), threads))
    assert len(started) <= 4 + threads * PREFETCH
