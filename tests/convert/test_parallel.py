"""Threads that are waited for: through errors and interrupts."""

import signal
import threading
import time

import pytest
from candle_convert.convert.parallel import Workers, each


def _interrupts(seconds, count):
    """Interrupt the main thread several times."""

    def send():
        for _ in range(count):
            time.sleep(seconds)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=send, daemon=True).start()


def test_an_interrupt_does_not_make_running_threads_ended():
    stop, ended = threading.Event(), []

    def work():
        stop.wait()
        time.sleep(0.3)
        ended.append(threading.get_ident())

    crew = Workers(work, 2)
    _interrupts(0.05, 1)
    with pytest.raises(KeyboardInterrupt):
        crew.wait(60)
    assert not crew.wait(0)
    stop.set()
    _interrupts(0.05, 3)
    crew.finish()
    assert crew.wait(0)
    assert len(ended) == 2


def test_every_item_is_worked_on_once():
    seen = []
    each(seen.append, range(100), 3)
    assert sorted(seen) == list(range(100))


def test_the_first_error_stops_all():
    seen = []

    def work(item):
        seen.append(item)
        if item == 3:
            raise ValueError(item)
        time.sleep(0.001)

    with pytest.raises(ValueError, match="3"):
        each(work, range(10_000), 2)
    assert len(seen) < 10_000
