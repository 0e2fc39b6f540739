"""Compile estimates: within a factor of two of the measured seconds of kernels, on machines of any speed; the bar moves
between stages."""

import os
import sys

import pytest
from candle_convert.runtime.execute import compile_estimate
from candle_convert.runtime.execute.compile_estimate import (
    BYTE_SECONDS,
    EMITTED_BYTE_SECONDS,
    EMITTED_SECONDS,
    KERNEL_SECONDS,
    WARM_UP_SECONDS,
    CompileEstimate,
    Work,
    stored_speed,
    work_of,
)
from candle_convert.runtime.jit import code_cache
from candle_convert.runtime.jit.range_kernel import inner, range_kernel

# Processor seconds that CANDLE_COMPILE_COST recorded on 2026-11-28 (AVX-512): kind of kernel, bytes of its
# bytecode, functions, and seconds of front end, optimizer and code generator.
TINY_LLAMA = [
    ("n", 13700, 16, 1.86, 0.84, 0.4), ("n", 13288, 18, 1.84, 2.02, 1.2), ("n", 4258, 7, 0.26, 0.18, 0.1),
    ("n", 4720, 8, 0.88, 0.39, 0.16), ("n", 2182, 5, 0.27, 0.05, 0.01), ("n", 3924, 8, 0.21, 0.26, 0.17),
    ("n", 1796, 4, 0.11, 0.12, 0.04), ("n", 668, 2, 0.07, 0.12, 0.08), ("n", 674, 3, 0.12, 0.09, 0.04),
    ("n", 674, 3, 0.13, 0.09, 0.05), ("n", 674, 3, 0.08, 0.09, 0.02), ("n", 1098, 4, 0.12, 0.12, 0.03),
    ("n", 636, 3, 0.08, 0.07, 0.05), ("n", 642, 3, 0.09, 0.02, 0.01), ("n", 582, 2, 0.06, 0.08, 0.05),
    ("n", 582, 2, 0.08, 0.05, 0.04), ("n", 582, 2, 0.06, 0.06, 0.05), ("n", 568, 2, 0.05, 0.05, 0.04),
    ("n", 568, 2, 0.08, 0.07, 0.05), ("n", 556, 2, 0.09, 0.06, 0.05), ("n", 556, 2, 0.09, 0.07, 0.05),
    ("n", 532, 2, 0.07, 0.06, 0.05), ("n", 1680, 4, 0.18, 0.07, 0.03), ("n", 522, 2, 0.08, 0.07, 0.05),
    ("n", 524, 2, 0.07, 0.05, 0.03), ("n", 524, 2, 0.05, 0.05, 0.03), ("n", 506, 2, 0.04, 0.05, 0.03),
    ("n", 506, 2, 0.06, 0.05, 0.03), ("n", 1646, 5, 0.1, 0.03, 0.01), ("n", 616, 3, 0.07, 0.05, 0.04),
    ("n", 444, 2, 0.05, 0.05, 0.04), ("n", 480, 2, 0.05, 0.07, 0.06), ("n", 480, 2, 0.05, 0.05, 0.04),
    ("n", 424, 2, 0.07, 0.04, 0.03), ("n", 340, 2, 0.03, 0.02, 0.01), ("n", 324, 2, 0.03, 0.02, 0.01),
    ("n", 434, 3, 0.04, 0.02, 0.01), ("n", 298, 2, 0.02, 0.02, 0.01), ("n", 298, 2, 0.03, 0.02, 0.01),
    ("e", 2054, 4, 0.01, 0.04, 0.04), ("e", 2054, 4, 0.01, 0.04, 0.04), ("e", 2054, 4, 0.01, 0.05, 0.05),
    ("e", 2054, 4, 0.01, 0.06, 0.04), ("e", 2266, 5, 0.0, 0.03, 0.02), ("e", 6124, 8, 0.06, 0.34, 0.15),
]  # fmt: skip
DIGITS = [
    ("n", 8644, 15, 0.88, 0.77, 0.3), ("n", 5232, 15, 0.55, 0.19, 0.07), ("n", 2182, 5, 0.27, 0.05, 0.01),
    ("n", 6346, 9, 0.58, 0.75, 0.18), ("n", 12596, 23, 0.85, 1.02, 0.36), ("n", 1406, 4, 0.14, 0.15, 0.07),
    ("n", 3404, 8, 0.36, 0.28, 0.06), ("n", 642, 3, 0.09, 0.02, 0.01), ("n", 478, 2, 0.06, 0.05, 0.04),
    ("e", 2054, 4, 0.01, 0.04, 0.04), ("e", 2054, 4, 0.01, 0.04, 0.04),
]  # fmt: skip


def work(kind, size, functions):
    if kind == "e":
        return Work(EMITTED_SECONDS + EMITTED_BYTE_SECONDS * size)
    return Work(KERNEL_SECONDS + BYTE_SECONDS * size, functions)


@pytest.fixture
def clock(monkeypatch):
    """The time of estimates, on a machine without other load and without earlier runs."""
    now = [0.0]
    monkeypatch.setattr(compile_estimate.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(code_cache, "folder", lambda: None)
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    return now


def events(kernels, workers, slowness):
    """Times at which workers start tasks and end stages, in order: (seconds, task, stage or None for a start)."""
    free, found = [0.0] * workers, []
    for task, (_, _, functions, front, optimize, emit) in enumerate(kernels):
        worker = free.index(min(free))
        at = free[worker]
        found.append((at, task, None))
        stages = [("type", front / (functions + 1))] * functions + [("parse and link", front / (functions + 1))]
        at += WARM_UP_SECONDS * slowness if task < workers else 0
        for stage, seconds in [*stages, ("optimize", optimize), ("end", emit)]:
            at += seconds * slowness
            found.append((at, task, stage))
        free[worker] = at
    return sorted(found, key=lambda event: event[0])


@pytest.mark.parametrize("slowness", [0.8, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kernels", [TINY_LLAMA, DIGITS], ids=["tiny_llama", "digits"])
def test_seconds_left_are_within_a_factor_of_two(kernels, workers, slowness, clock):
    kernels = sorted(kernels, key=lambda kernel: -work(*kernel[:3]).seconds)
    estimate = CompileEstimate([work(*kernel[:3]) for kernel in kernels], workers)
    pending = events(kernels, workers, slowness)
    end = pending[-1][0]
    shares, wrong = [], []
    for step in range(100):
        at = end * step / 100
        while pending and pending[0][0] <= at:
            clock[0], task, stage = pending.pop(0)
            if stage is None:
                estimate.start(task)
                continue
            share = 1.0 if stage == "end" else estimate.share_after(task, stage)
            if share is not None:
                estimate.advance(task, share)
        clock[0] = at
        progress = estimate.progress()
        shares.append(progress.share)
        true, shown = end - at, progress.seconds_left
        if step >= 10 and not true / 2 - 0.2 <= shown <= 2 * true + 0.2:
            wrong.append((step, round(true, 2), round(shown, 2)))
    assert wrong == []
    assert shares == sorted(shares)
    assert len(set(shares)) > 80


def test_the_bar_moves_before_the_first_stage_ends(clock):
    estimate = CompileEstimate([Work(4.0, 10), Work(1.0, 2)], 2)
    estimate.start(0)
    shares = []
    for clock[0] in (0.1, 0.3, 0.5, 1.0, 3.0):
        shares.append(estimate.progress().share)
    assert shares == sorted(set(shares))
    assert 0 < shares[0] < shares[-1] < 0.5


def test_a_busy_machine_is_slower(clock, monkeypatch):
    idle = CompileEstimate([Work(4.0, 10)] * 4, 2).progress().seconds_left
    monkeypatch.setattr(os, "getloadavg", lambda: (14.0, 0.0, 0.0))
    assert CompileEstimate([Work(4.0, 10)] * 4, 2).progress().seconds_left == pytest.approx(2 * idle)


def test_later_runs_begin_with_the_measured_speed(clock, monkeypatch, tmp_path):
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    monkeypatch.setattr(code_cache, "folder", lambda: kernels)
    assert stored_speed() == 1
    estimate = CompileEstimate([Work(10.0)], 1, 1.0)
    estimate.start(0)
    clock[0] = 5.0
    estimate.advance(0, WARM_UP_SECONDS / (10 + WARM_UP_SECONDS))
    clock[0] = 35.0
    estimate.advance(0, 1.0)
    assert estimate.progress().seconds_left == 0
    estimate.store()
    assert stored_speed() == pytest.approx(2.8, abs=0.4)
    (tmp_path / compile_estimate.SPEED_FILE).write_text("nan")
    assert stored_speed() == 1
    (tmp_path / compile_estimate.SPEED_FILE).write_text("no number")
    assert stored_speed() == 1


@inner
def halved(x):
    return x / 2


def test_functions_that_a_kernel_calls_count():
    def short(x, part, parts):
        x += 1

    def calling(x, part, parts):
        x += halved(x)

    assert work_of(range_kernel(short)).functions == 1
    found = work_of(range_kernel(calling))
    assert found.functions == 2
    size = len(calling.__code__.co_code) + len(halved.__code__.co_code)
    assert found.seconds == pytest.approx(KERNEL_SECONDS + BYTE_SECONDS * size)
