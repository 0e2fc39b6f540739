"""Seconds of compiling are left out of measurements; the notice is one line on a terminal, and can be disabled."""

import io
import sys
import threading
import time

import candle_convert as cc
import pytest
from candle_convert.runtime.base.compile_progress import (
    VARIABLE,
    CompileNotice,
    CompileProgress,
    Stopwatch,
    compile_time,
    description,
    report,
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_compiling_is_left_out_once_even_where_it_is_nested():
    watch = Stopwatch()
    with compile_time(3), compile_time(1):
        time.sleep(0.2)
        assert watch.seconds < 0.15
    time.sleep(0.05)
    assert 0.2 <= watch.compile_seconds < 1
    assert watch.seconds >= 0.05
    assert watch.kernels == 3


def test_a_stopwatch_counts_the_thread_that_made_it():
    watch = Stopwatch()

    def compiles():
        with compile_time(2):
            time.sleep(0.05)

    thread = threading.Thread(target=compiles)
    thread.start()
    thread.join()
    assert (watch.kernels, watch.compile_seconds) == (0, 0)


def test_one_kernel_is_singular():
    assert description(1) == "compiling 1 kernel for this processor, once per machine"
    assert description(51) == "compiling 51 kernels for this processor, once per machine"


STATES = [CompileProgress(0, 0), *(CompileProgress(done, 5, done / 5, 12.4 - done) for done in range(6))]


@pytest.mark.parametrize(
    ("stream", "chosen", "states", "shown"),
    [
        (Terminal, None, STATES, "compiling 5 kernels for this processor, once per machine: about 12 s\n"),
        (Terminal, "0", STATES, ""),
        (io.StringIO, None, STATES, ""),
        (Terminal, None, [CompileProgress(0, 5, 0.0, 0.4)], ""),
    ],
)
def test_the_notice(stream, chosen, states, shown, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    if chosen is not None:
        monkeypatch.setenv(VARIABLE, chosen)
    monkeypatch.setattr(sys, "stderr", stream())
    notice = CompileNotice()
    for state in states:
        notice(state)
    assert sys.stderr.getvalue() == shown


def test_a_callback_takes_the_place_of_the_notice_in_all_threads():
    heard = []
    before = cc.on_compile(heard.append)
    try:
        thread = threading.Thread(target=report, args=(STATES[1],))
        thread.start()
        thread.join()
        assert cc.on_compile(None) == heard.append
        report(STATES[2])
    finally:
        cc.on_compile(before)
    assert heard == [STATES[1]]
