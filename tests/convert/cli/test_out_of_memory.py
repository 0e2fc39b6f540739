"""Memory that cannot be had is exit 6 and one line, wherever it is missed: at the start, in imports, threads, libraries
and commands."""

import errno
import os
import resource
import subprocess
import sys

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.console.thread_pool import each
from candle_convert.runtime.base.out_of_memory import memory_limited, shortage
from candle_convert.tests.builders.tiny_llama import written

PROGRAM = "from candle_convert.convert.__main__ import main; main()"
LIMITS = (60_000, 100_000, 130_000, 150_000, 165_000, 180_000, 200_000, 300_000)
"""KiB of address space: too little for Python's libraries, for NumPy's, for threads, and enough."""
COMMANDS = (
    ("inspect", "m.gguf"),
    ("convert", "m.gguf", "o.safetensors", "-f"),
    ("convert", "m.gguf", "onnx", "-t", "onnx", "-f"),
    ("quantize", "m.gguf", "q.gguf", "Q8_0", "-f"),
    ("generate", "m.gguf", "-p", "ab", "--max-tokens", "2"),
    ("scan", "m.gguf"),
    ("tokenizer", "encode", "m.gguf", "ab"),
    ("types",),
    ("inspect", "m.gguf", "--json"),
)


def run(words, folder, kib):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (kib << 10, kib << 10))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    command = [sys.executable, "-c", PROGRAM, *words]
    return subprocess.run(
        command, cwd=folder, preexec_fn=limit, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("limited")
    written(folder / "m.gguf")
    for words in COMMANDS:
        assert run(words, folder, 1 << 22).returncode == 0, words
    return folder


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kib", LIMITS)
def test_commands_end_with_0_or_6(kib, folder, full):
    for words in COMMANDS if full or kib in (100_000, 150_000) else COMMANDS[1:5]:
        ended = run(words, folder, kib)
        assert ended.returncode in (0, 6), (words, ended.returncode, ended.stderr)
        assert "Traceback" not in ended.stderr, words
        if ended.returncode == 6 and "--json" not in words:
            assert "E-MEMORY" in ended.stderr, (words, ended.stderr)


def test_150_mb_are_refused_in_one_line(folder):
    ended = run(("convert", "m.gguf", "o.safetensors", "-f"), folder, 110_000)
    assert ended.returncode == 6
    assert len(ended.stderr.splitlines()) == 1
    assert "E-MEMORY" in ended.stderr
    assert "112,640,000 bytes of address space" in ended.stderr


FAILED = {
    "an allocation": MemoryError(),
    "an array": MemoryError("Unable to allocate 4.00 PiB for an array"),
    "a system call": OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
    "a thread": RuntimeError("can't start new thread"),
    "a library": ImportError("libx.so: failed to map segment from shared object"),
    "C++": RuntimeError("std::bad_alloc"),
    "a static block": ImportError("libx.so: cannot allocate memory in static TLS block"),
}


@pytest.mark.parametrize("what", FAILED)
def test_failed_allocations_are_known(what):
    @memory_limited
    def fail():
        raise FAILED[what]

    with pytest.raises(cc.LimitError) as caught:
        fail()
    assert (caught.value.code, caught.value.exit_code) == ("E-MEMORY", 6)
    assert "\n" not in str(caught.value)
    wrapped = ValueError("x")
    wrapped.__cause__ = FAILED[what]
    assert shortage(wrapped) is not None


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOENT, "no file"), RuntimeError("x"), ImportError("No module named x"), KeyError("out of memory")],
)
def test_other_errors_are_not(error):
    assert shortage(error) is None


def test_work_goes_on_without_threads(monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", start)
    done = []
    each(done.append, range(5), 4)
    assert done == [0, 1, 2, 3, 4]


def test_python_calls_raise_our_error(tmp_path):
    program = """
import resource, sys
import numpy as np
import candle_convert as cc
from candle_convert.formats import safetensors
cc.load_file(sys.argv[1])
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (32 << 20)
resource.setrlimit(resource.RLIMIT_AS, (size, size))
try:
    cc.load_file(sys.argv[2])
except cc.LimitError as error:
    print(error.code)
"""
    cc.save_file({"a": np.zeros(4, np.float32)}, tmp_path / "small.safetensors")
    cc.save_file({"a": np.zeros(1 << 24, np.float32)}, tmp_path / "large.safetensors")
    told = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "small.safetensors", tmp_path / "large.safetensors"],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert told.stdout == "E-MEMORY\n"


@pytest.mark.parametrize(("ending", "how"), [("os.abort()", "by signal 6"), ("ctypes.CDLL(None).exit(1)", "with 1")])
def test_a_library_that_ends_the_process_is_told(ending, how):
    program = f"""
import ctypes, os
from candle_convert.convert.cli.supervisor import supervised
supervised(lambda: {ending})
"""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    ended = subprocess.run(
        [sys.executable, "-c", program], preexec_fn=limit, capture_output=True, text=True, timeout=600, check=False
    )
    assert ended.returncode == 6
    assert f"a library ended the command {how}" in ended.stderr


def test_a_negative_answer_is_not_taken_for_a_library(folder):
    cc.save_file({"x": np.ones(4, np.float32)}, folder / "other.safetensors")
    assert run(("diff", "m.gguf", "other.safetensors"), folder, 1 << 22).returncode == 1
