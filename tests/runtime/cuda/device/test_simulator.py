"""Simulated blocks: barriers, missing barriers, failing threads."""

import threading

import pytest
from candle_convert.runtime.cuda.device.simulator import Block

SHAPE = (4, 2, 1)


def ran(function):
    """Two blocks, which begin with their first and with their last thread."""
    for x in range(2):
        Block(lambda: function(threading.current_thread()), (2, 1, 1), SHAPE, False).run((x, 0, 0))


def test_threads_wait_for_each_other():
    """Each takes its neighbour's number, those with an odd number once and the others twice, in two rows of four."""
    held, found = [[0] * 8, [0] * 8], []

    def rotate(thread):
        own, numbers = thread.thread_id, held[thread.blockIdx.x]
        numbers[own] = own
        for _ in range(2 - own % 2):
            thread.syncthreads()
            value = numbers[(own + 1) % 8]
            thread.syncthreads()
            numbers[own] = value
        found.append((*thread.blockIdx, *thread.threadIdx))

    ran(rotate)
    assert held == [[2, 2, 4, 4, 6, 6, 0, 0]] * 2
    assert sorted(found) == [(block, 0, 0, x, y, 0) for block in range(2) for x in range(4) for y in range(2)]


@pytest.mark.parametrize("reader", [0, 7])
def test_a_barrier_that_lacks_is_seen(reader):
    """Whoever reads what another thread writes, one of the blocks reads too early."""
    held, found = [0], []

    def careless(thread):
        if thread.thread_id == 7 - reader:
            held[0] = 1
        if thread.thread_id == reader:
            found.append(held[0])
            held[0] = 0

    ran(careless)
    assert sorted(found) == [0, 1]


def test_an_error_ends_the_block():
    before = set(threading.enumerate())

    def failing(thread):
        if thread.thread_id == 5:
            raise ZeroDivisionError("no number")
        thread.syncthreads()

    with pytest.raises(ZeroDivisionError, match="no number") as caught:
        ran(failing)
    assert caught.value.__notes__ == ["thread (1, 1, 0) of block (0, 0, 0)"]
    assert set(threading.enumerate()) <= before


def test_threads_that_wait_at_different_barriers_are_an_error():
    """A card would wait for ever."""

    def divided(thread):
        if thread.thread_id % 2:
            thread.syncthreads()
        else:
            thread.syncthreads()

    with pytest.raises(RuntimeError, match="different lines"):
        ran(divided)
