"""`pytest --workers N` on a small suite of its own: what it prints, reports and returns, compared with plain pytest."""

import os
import re
import signal
import subprocess
import sys
import time
from xml.etree import ElementTree

import pytest

CONFTEST = """
import os

import pytest


def log(text):
    with open(os.environ["LOG"], "a") as file:
        file.write(f"{text} {os.getpid()}\\n")


@pytest.fixture(scope="session")
def shared():
    yield
    log("session-end")


@pytest.fixture(scope="module")
def module(shared, tmp_path_factory):
    log("module-begin")
    yield tmp_path_factory.mktemp("made")
    log("module-end")
"""
SUITE = """
import os
import signal
import sys
import time
import warnings

import pytest


def test_passes(module, tmp_path):
    assert tmp_path.parent == module.parent
    (tmp_path / "file").write_text("text")


def test_fails(module):
    print("to stdout")
    print("to stderr", file=sys.stderr)
    assert [1, 2] == [1, 3]


@pytest.mark.skip(reason="not now")
def test_skipped():
    pass


@pytest.mark.xfail(strict=True)
def test_expected_to_fail():
    warnings.warn("a warning")
    raise OSError


@pytest.fixture
def broken():
    yield
    raise OSError("teardown")


def test_with_a_broken_fixture(broken):
    pass


@pytest.mark.timeout(0.2)
def test_takes_too_long():
    time.sleep(60)


@pytest.mark.parametrize("number", range(6))
def test_numbers(number, module, record_property):
    record_property("square", number**2)
"""
CRASHES = """

def test_is_killed(module):
    os.kill(os.getpid(), signal.SIGKILL)


def test_exits():
    os._exit(0)


def test_after_a_crash(module):
    pass
"""
SLEEPS = """
import time

import pytest


@pytest.fixture(scope="session", autouse=True)
def shared():
    yield
    open("ended", "a").write("ended ")


def test_fails_first():
    assert False


@pytest.mark.parametrize("number", range(3))
def test_sleeps(number):
    open("began", "a").write("began ")
    time.sleep(60)
"""
PLUGINS = ("pytest_timeout", "xdist.plugin", "candle_convert.tests.plugins.forked_workers")


@pytest.fixture
def suite(tmp_path):
    """Writes modules of tests and starts pytest on them."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\njunit_family = xunit1\n")
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = outer | {
        "LOG": str(tmp_path / "log"),
        "PYTEST_DEBUG_TEMPROOT": str(tmp_path),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TERM": "dumb",
    }
    command = [sys.executable, "-m", "pytest", *(word for name in PLUGINS for word in ("-p", name))]

    def start(*words, **modules):
        for name, text in modules.items():
            (tmp_path / (f"test_{name}.py" if name != "conftest" else "conftest.py")).write_text(text)
        return subprocess.Popen(
            [*command, *words],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def run(*words, **modules):
        process = start(*words, **modules)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    run.start, run.folder = start, tmp_path
    return run


def reported(path):
    """For each test of a JUnit file: what became of it, with the first line of its message and its properties."""
    found = {}
    for case in ElementTree.parse(path).iter("testcase"):
        outcome = sorted((part.tag, part.get("message", "").partition("\n")[0]) for part in case if len(part) == 0)
        values = [entry.get("value") for entry in case.iter("property")]
        found.setdefault((case.get("classname"), case.get("name")), []).append((outcome, values))
    return found


def closing(out):
    return re.sub(r" in [\d.]+s.*", "", out.strip().splitlines()[-1]).strip("= ")


def test_reports_are_those_of_plain_pytest(suite):
    code, plain, _ = suite("--junitxml=plain.xml", a=SUITE, b=SUITE)
    (suite.folder / "log").unlink()
    assert (code, closing(plain)) == (1, "4 failed, 16 passed, 2 skipped, 2 xfailed, 2 warnings, 2 errors")
    code, out, err = suite("--workers", "2", "--junitxml=forked.xml", "--durations=2")
    assert (code, closing(out), err) == (1, closing(plain), "")
    assert reported(suite.folder / "forked.xml") == reported(suite.folder / "plain.xml")
    for text in ("\nto stdout\n", "\nto stderr\n", "Timeout (>0.2s) from pytest-timeout", "UserWarning: a warning"):
        assert text in out
    assert len(re.findall(r"0\.\d\ds call +test_[ab].py::test_takes_too_long", out)) == 2
    lines = [line.split() for line in (suite.folder / "log").read_text().splitlines()]
    for process in {process for _, process in lines}:
        *texts, last = [text for text, of in lines if of == process]
        assert texts == ["module-begin", "module-end"] * (len(texts) // 2)
        assert last == "session-end"


def test_a_dead_worker_fails_its_test_and_is_replaced(suite):
    chosen = "killed or exits or after or numbers"
    code, out, _ = suite("--workers", "1", "--junitxml=forked.xml", "-k", chosen, a=SUITE + CRASHES)
    assert (code, closing(out)) == (1, "2 failed, 7 passed, 6 deselected")
    assert "worker0 was killed by SIGKILL while it ran test_a.py::test_is_killed" in out
    assert "worker1 exited with code 0 while it ran test_a.py::test_exits" in out
    failed = [name for (_, name), [(outcome, _)] in reported(suite.folder / "forked.xml").items() if outcome]
    assert failed == ["test_is_killed", "test_exits"]


def test_a_worker_that_dies_is_the_first_failure(suite):
    code, out, _ = suite("--workers", "1", "-x", "-k", "killed or exits", a=SUITE + CRASHES)
    assert (code, closing(out)) == (1, "1 failed, 13 deselected")
    assert "stopping after 1 failures" in out


def test_tests_that_are_lost_are_an_error(suite):
    lose = "from candle_convert.tests.plugins.work_queue import WorkQueue\nWorkQueue.left = lambda *arguments: False\n"
    code, out, _ = suite("--workers", "1", "-k", "killed or exits", conftest=CONFTEST + lose, a=SUITE + CRASHES)
    assert (code, "WorkerError: 1 of 2 tests ran" in out) == (3, True)


def test_first_failure_ends_the_run(suite):
    begin = time.monotonic()
    code, out, _ = suite("--workers", "2", "-x", "--deselect", "test_b.py::test_fails_first", a=SLEEPS, b=SLEEPS)
    assert (code, closing(out)) == (1, "1 failed, 1 deselected")
    assert "stopping after 1 failures" in out
    assert (suite.folder / "ended").read_text() == "ended ended "
    assert time.monotonic() - begin < 50


def test_an_interrupt_tears_down_and_ends_all_processes(suite):
    process = suite.start("--workers", "2", "-k", "sleeps", a=SLEEPS)
    began = suite.folder / "began"
    while process.poll() is None and not (began.exists() and began.read_text() == "began began "):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=50)  # ends when no process holds the pipe
    assert process.returncode == 2
    assert "KeyboardInterrupt" in out
    assert (suite.folder / "ended").read_text() == "ended ended "


def test_exit_codes(suite):
    assert suite("--workers", "2", "-q", "-k", "nothing", a=SUITE)[0] == 5
    code, _, err = suite("--workers", "2", "-n", "2")
    assert (code, err.strip()) == (4, "ERROR: choose one of --workers and -n")
    code, out, _ = suite("--workers", "2", a="import nothing\n", b="def test_passes(): pass\n")
    assert (code, closing(out)) == (2, "1 error")
    assert suite("--workers", "2", a="def test_passes(): pass\n")[0] == 0


def test_what_tests_end_is_passed_on(suite):
    code, out, _ = suite("--workers", "2", a="import pytest\ndef test_a(): pytest.exit('enough', 7)\n")
    assert (code, "Exit: enough" in out) == (7, True)
    broken = "import pytest\n@pytest.fixture(scope='session')\ndef f():\n    yield\n    1 / 0\ndef test_a(f): pass\n"
    code, out, _ = suite("--workers", "2", a=broken)
    assert (code, closing(out)) == (1, "1 passed, 1 error")
    assert "ERROR at teardown of test_a" in out
