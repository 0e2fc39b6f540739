"""``pytest --workers N``: tests are collected once and run in N forks of the process that collected them.

Workers of ``-n``, pytest-xdist's option, import and collect everything themselves.
"""

from __future__ import annotations

import os

import pytest

from .forked_run import ForkedRun
from .work_queue import WorkQueue, by_file, dearest_first

SECONDS = "forked_workers/seconds"
"""Entry of pytest's cache: mean time of a test of each file."""
IN_ORDER = ("failedfirst", "newfirst", "stepwise")
"""Options that choose the order of files."""
IN_PROCESS = ("collectonly", "usepdb", "trace", "setuponly", "setupshow", "setupplan")
"""Options with which tests run in the process that collected them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("forked workers").addoption(
        "--workers",
        type=_count,
        default=0,
        metavar="N",
        help="collect once, then run tests in N forked processes; auto: one for each core",
    )


def _count(text: str) -> int:
    return len(os.sched_getaffinity(0)) if text == "auto" else max(0, int(text))


def workers(config: pytest.Config) -> int:
    """Number of processes to fork; 0 if tests run in this one."""
    return 0 if any(config.getoption(name, False) for name in IN_PROCESS) else config.getoption("workers", 0)


def pytest_configure(config: pytest.Config) -> None:
    if workers(config) and config.getoption("numprocesses", None):
        raise pytest.UsageError("choose one of --workers and -n")


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [f"forked workers: {workers(config)}"] if workers(config) else []


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    config = session.config
    errors = session.testsfailed and not config.option.continue_on_collection_errors
    if errors or not workers(config):
        return None  # to pytest's own loop
    terminal = config.pluginmanager.getplugin("terminalreporter")
    if terminal is not None:
        terminal.showfspath = False  # files of several workers alternate
    files, known = by_file(session.items), _stored_seconds(config)
    in_order = any(config.getoption(name, False) for name in IN_ORDER)
    run = ForkedRun(session, WorkQueue(files.values() if in_order else dearest_first(files, known)))
    config._tmp_path_factory.getbasetemp()  # workers have folders in it
    try:
        run.run(workers(config))
    finally:
        run.close()
        _store_seconds(config, known | {path: total / number for path, (number, total) in run.seconds.items()})
    return True


def _stored_seconds(config: pytest.Config) -> dict[str, float]:
    cache = getattr(config, "cache", None)
    stored = None if cache is None else cache.get(SECONDS, None)
    return {path: mean for path, mean in stored.items() if isinstance(mean, float)} if isinstance(stored, dict) else {}


def _store_seconds(config: pytest.Config, seconds: dict[str, float]) -> None:
    cache = getattr(config, "cache", None)
    if cache is not None:
        cache.set(
            SECONDS, {path: round(mean, 6) for path, mean in seconds.items() if (config.rootpath / path).exists()}
        )
