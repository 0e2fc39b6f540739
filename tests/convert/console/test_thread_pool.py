"""Threads that are waited for: through errors and interrupts."""

import itertools
import queue
import signal
import threading

import pytest
from candle_convert.convert.console.thread_pool import Workers, each, results


def interrupt():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


class Watched(Workers):
    """Says, at each look, that somebody waits in `finish`, which takes all interrupts from there on."""

    def __init__(self, work, threads):
        super().__init__(work, threads)
        self.finishing, self.waits = False, queue.SimpleQueue()

    def finish(self):
        self.finishing = True
        super().finish()

    def _look(self, seconds):
        if self.finishing:
            self.waits.put(None)
        super()._look(seconds)


class Crew:
    """Two threads that begin, interrupt the main thread, wait until it waits for them, interrupt it again and end."""

    def __init__(self):
        self.begun, self.ended = threading.Barrier(2), []
        self.workers = Watched(self.work, 2)

    def begin(self):
        self.workers.start()
        self.workers.wait(threading.TIMEOUT_MAX)

    def work(self):
        if self.begun.wait() == 0:
            interrupt()
        self.workers.waits.get()
        interrupt()
        self.ended.append(threading.get_ident())


def test_an_interrupt_does_not_make_running_threads_ended():
    crew = Crew()
    with pytest.raises(KeyboardInterrupt):
        crew.begin()
    assert not crew.workers.wait(0)
    with pytest.raises(KeyboardInterrupt):
        crew.workers.finish()
    assert len(crew.ended) == 2


def test_threads_that_were_not_begun_do_nothing_later():
    done = []
    workers = Workers(lambda: done.append(1), 2)
    workers.finish()
    workers.start()
    workers.finish()
    assert not done


def test_every_item_is_worked_on_once():
    seen = []
    each(seen.append, range(100), 3)
    assert sorted(seen) == list(range(100))


def test_the_first_error_stops_all():
    def work(item):
        if item == 3:
            raise ValueError(item)

    with pytest.raises(ValueError, match="3"):
        each(work, itertools.count(), 2)


@pytest.mark.parametrize("threads", [1, 3])
def test_results_are_in_the_order_of_the_items(threads):
    assert results(lambda item: item * item, range(50), threads) == [item * item for item in range(50)]
    assert results(str, [], threads) == []
