"""Worker process: a fork of the process that collected the tests, which runs those that it is sent."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import signal
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import pytest
from _pytest._io import TerminalWriter
from _pytest.runner import CallInfo

STOP = -1
"""Sent in place of the index of a test: end."""
END_OF_FILE = -2
"""Sent after the last test of a file."""
_SIGNAL_WITH_PARENT = 1
"""`prctl` option: signal sent to a process when its parent ends. Source: prctl(2), PR_SET_PDEATHSIG."""


@dataclass
class Outcome:
    """What a worker tells of a test, or of its own end."""

    reports: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[dict[str, Any]] = field(default_factory=list)
    shouldfail: Any = False
    shouldstop: Any = False
    interrupted: bool = False
    exit: tuple[str, int | None] | None = None
    """Message and exit code of `pytest.exit`."""
    internal_error: str = ""
    last: bool = False
    """Whether the worker has torn down everything and ends."""


def work(session: pytest.Session, connection: Connection, name: str) -> None:
    """Run the tests whose indices arrive, then tear down the session's fixtures."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SIGNAL_WITH_PARENT, signal.SIGINT)
    _detach(session.config, name)
    outcomes = Outcomes(session.config)
    session.config.pluginmanager.register(outcomes, "forked_worker")
    outcomes.pop()  # earlier warnings, of which plugins are told when they are registered
    last = None
    try:
        for item, following in _pairs(session, connection):
            last = item
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            outcomes.current.shouldfail, outcomes.current.shouldstop = session.shouldfail, session.shouldstop
            connection.send(outcomes.pop())
            if session.shouldfail or session.shouldstop:
                break
    except KeyboardInterrupt:
        outcomes.current.interrupted = True
    except pytest.exit.Exception as error:
        outcomes.current.exit = error.msg, error.returncode
    except (EOFError, BrokenPipeError):  # the parent is gone
        pass
    except BaseException as error:
        outcomes.current.internal_error = str(pytest.ExceptionInfo.from_exception(error).getrepr(style="long"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _tear_down(session, last)
    outcomes.current.last = True
    with contextlib.suppress(OSError):
        connection.send(outcomes.pop())


def _detach(config: pytest.Config, name: str) -> None:
    """Give this process its own captured streams, folder for temporary files and, for what is written to the terminal,
    the captured stderr."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
    factory = config._tmp_path_factory
    factory._given_basetemp, factory._basetemp = factory.getbasetemp() / name, None
    terminal = config.pluginmanager.getplugin("terminalreporter")
    if terminal is not None:
        config.pluginmanager.unregister(terminal)
        config.pluginmanager.register(_CapturedTerminal(), "terminalreporter")
    config.workerinput = {"workerid": name}  # as in workers of xdist: reports and caches are not written here


class _CapturedTerminal:
    """In place of the terminal reporter: its writer is what pytest-timeout dumps stacks to."""

    def __init__(self) -> None:
        self._tw = TerminalWriter(self)

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def _pairs(session: pytest.Session, connection: Connection) -> Iterator[tuple[pytest.Item, Any]]:
    """Each test with the next one of its file. After the last, only what is the session's stays set up."""
    while (index := connection.recv()) != STOP:
        while index != END_OF_FILE:
            following = connection.recv()
            if following == STOP:
                return
            yield session.items[index], session if following == END_OF_FILE else session.items[following]
            index = following


def _tear_down(session: pytest.Session, last: pytest.Item | None) -> None:
    """Tear down what is still set up; an error is one of the last test."""
    call = CallInfo.from_call(lambda: session._setupstate.teardown_exact(None), "teardown")
    if call.excinfo is not None and last is not None:
        report = last.config.hook.pytest_runtest_makereport(item=last, call=call)
        last.config.hook.pytest_runtest_logreport(report=report)


class Outcomes:
    """Plugin that gathers the reports and warnings of a test."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.current = Outcome()

    def pop(self) -> Outcome:
        done, self.current = self.current, Outcome()
        return done

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.current.reports.append(data)

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        category = warning_message.category
        plain = str(warning_message.message), category.__module__, category.__name__
        place = warning_message.filename, warning_message.lineno, warning_message.line
        self.current.warnings.append(
            {"plain": plain, "place": place, "when": when, "nodeid": nodeid, "location": location}
        )


def warning_of(plain: tuple[str, str, str], place: tuple[str, int, str | None]) -> warnings.WarningMessage:
    """A warning that a worker recorded. Its category is one of the same name where its own would be imported."""
    text, module, name = plain
    category = getattr(builtins, name) if module == "builtins" else type(name, (Warning,), {"__module__": module})
    filename, lineno, line = place
    return warnings.WarningMessage(category(text), category, filename, lineno, None, line)
