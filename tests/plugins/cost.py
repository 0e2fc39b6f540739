"""``pytest --cost``: where the processor seconds of a run go, by kind, stage of compilation, kernel and test.

Each process samples its Python stack every 10 ms of processor time, or when a call of native code returns, and charges
the time since the last sample; `KINDS` says what a stack belongs to. Kernels are
recorded by `runtime/jit/compile_cost.py`. Seconds of processes that tests start are counted apart.
"""

import json
import os
import resource
import signal
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from candle_convert.runtime.base.units import counted
from candle_convert.runtime.jit import compile_cost

INTERVAL = 0.01
"""Processor seconds between two samples."""
SHOWN = 40
KINDS = (
    ("collect", ("_pytest/python.py:collect", "_pytest/main.py:perform_collect")),
    ("compile", ("runtime/jit/kernel_store.py:store", "runtime/jit/code_cache.py:_compiled")),
    ("oracle", (
        "/onnxruntime/", "/torch/", "/transformers/", "/onnx/", "/tests/oracles/", "/peft/", "/h5py/", "/jax/", "/PIL/",
        "/sentencepiece/", "/tiktoken/", "/skimage/", "/snac/", "/xllamacpp/", "/cyllama/", "/hypothesis/",
    )),
    ("import", ("<frozen importlib._bootstrap>:_find_and_load",)),
    ("run", ("",)),
)  # fmt: skip
"""What a stack belongs to: the first kind that one of its frames matches, by a part of ``file:function``."""


def pytest_addoption(parser):
    parser.addoption("--cost", action="store_true", help="print the processor seconds by kind, kernel and test")


def pytest_configure(config):
    if not config.getoption("--cost"):
        return
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="candle-cost-")
        os.environ["CANDLE_TEST_COST"] = folder
        os.environ[compile_cost.VARIABLE] = str(Path(folder, "kernels"))
    config.pluginmanager.register(_Cost(Path(os.environ["CANDLE_TEST_COST"])), "cost-of-tests")


class _Cost:
    """Appends a line for the collection and each test of a process, and prints the tables where the run ends."""

    def __init__(self, folder):
        self.folder, self.process, self.samples, self.sampled = folder, 0, Counter(), 0.0
        self._start()

    def _start(self):
        """Sample this process; a fork inherits no timer."""
        self.process, self.sampled = os.getpid(), time.process_time()
        self.samples.clear()
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)

    def _sample(self, number, frame):
        names = []
        while frame is not None:
            names.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")
            frame = frame.f_back
        kind = next(kind for kind, parts in KINDS if any(part in name for part in parts for name in names))
        self.samples[kind] += time.process_time() - self.sampled
        self.sampled = time.process_time()

    def _append(self, name, before):
        line = {"name": name, "process": self.process, "samples": dict(self.samples)}
        line |= {"seconds": time.process_time() - before[0], "children": _children() - before[1]}
        self.samples.clear()
        with (self.folder / "tests").open("a") as file:
            file.write(json.dumps(line) + "\n")

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self):
        result = yield
        self._append("", (0, 0))
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        if self.process != os.getpid():
            self._start()
        before = time.process_time(), _children()
        result = yield
        self._append(item.nodeid, before)
        return result

    def pytest_terminal_summary(self, terminalreporter):
        tests = self.folder / "tests"
        lines = [json.loads(line) for line in tests.read_text().splitlines()] if tests.exists() else []
        for title, rows in tables(lines, compile_cost.read(self.folder / "kernels")):
            terminalreporter.section(title)
            for row in rows:
                terminalreporter.write_line(row)

    def pytest_unconfigure(self):
        signal.setitimer(signal.ITIMER_PROF, 0)


def _children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tables(lines, kernels):
    """Titles and rows of the tables, from the lines of processes and the records of kernels."""
    tests = [line for line in lines if line["name"]]
    kinds = sum((Counter(line["samples"]) for line in lines), Counter())
    rows = [f"{seconds:9.1f}  {kind}" for kind, seconds in kinds.most_common()]
    rows.append(f"{sum(line['children'] for line in tests):9.1f}  processes that tests start")
    total = sum(line["seconds"] + line["children"] for line in lines)
    rows.append(f"{total:9.1f}  all, in {counted(len({line['process'] for line in lines}), 'process', 'processes')}")
    yield "processor seconds by kind", rows
    yield from compile_cost.tables(kernels, SHOWN)
    dearest = sorted(tests, key=lambda line: -line["seconds"] - line["children"])[:SHOWN]
    yield f"{SHOWN} dearest tests", [f"{line['seconds'] + line['children']:9.2f}  {line['name']}" for line in dearest]
    files = defaultdict(float)
    for line in tests:
        files[line["name"].partition("::")[0]] += line["seconds"] + line["children"]
    dearest = sorted(files.items(), key=lambda item: -item[1])[:SHOWN]
    yield f"{SHOWN} dearest files", [f"{seconds:9.2f}  {name}" for name, seconds in dearest]
