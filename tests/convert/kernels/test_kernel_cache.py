"""The cache: warmed for a model, no run of any length compiles or loads the compiler; what lies there is counted and
cleared."""

import json
import os
import select
import shutil
import subprocess
import sys
import time

import onnx
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.kernels.kernel_cache import FAMILIES, synthetic_model
from candle_convert.runtime.jit import code_cache
from candle_convert.tests.builders.tiny_llama import written
from onnx import TensorProto, helper

WARM = """
import pathlib, sys
from candle_convert.convert.cli.main import run
from candle_convert.runtime.execute.shape_warmup import ShapeWarmup
from candle_convert.runtime.jit import code_cache

asked, cache_file = set(), code_cache.cache_file


def seen(name, fingerprint):
    path = cache_file(name, fingerprint)
    asked.add(str(path))
    return path


code_cache.cache_file, ShapeWarmup._has_note = seen, lambda self: False
assert run(["cache", "warm", sys.argv[1]]) == 0
pathlib.Path(sys.argv[2]).write_text("\\n".join(asked))
"""

AGAIN = """
import sys
import candle_convert as cc

model = cc.models.load(sys.argv[1])
for text in ("H", "Hello there", "Hello there " * 9, "there " * 40):
    model.generate(text, max_tokens=4, temperature=0)
assert not {"numba", "llvmlite.binding"} & set(sys.modules)
"""

IN_PROCESSES = """
import os, pathlib, sys
from candle_convert.runtime.execute import compile_ahead as preparing
from candle_convert.runtime.base.compile_progress import on_compile

folder, told = pathlib.Path(sys.argv[1]), []
preparing.cores = lambda: 2
on_compile(lambda progress: told.append((progress.compiled, progress.total)))


def task(number):
    (folder / str(number)).write_text(str(os.getpid()))
    if number == 3:
        os._exit(1)


preparing.run_all([lambda number=number: task(number) for number in range(6)])
assert sorted(path.name for path in folder.iterdir()) == list("012345")
assert str(os.getpid()) not in {path.read_text() for path in folder.iterdir()}
assert told[0] == (0, 6)
assert told[-1] == (6, 6)
"""

STUCK = """
import os, pathlib, sys, threading
from candle_convert.runtime.execute import compile_ahead as preparing
from candle_convert.runtime.base.compile_progress import on_compile

folder, never = pathlib.Path(sys.argv[1]), threading.Lock()
never.acquire()
preparing.cores = lambda: 2


def said(progress):
    preparing.TIMEOUT_SECONDS = 0.1 if progress.compiled == 3 else 600


on_compile(said)


def task(number):
    (folder / str(number)).touch()
    if number == 0:
        never.acquire()


preparing.run_all([lambda number=number: task(number) for number in range(4)])
assert sorted(path.name for path in folder.iterdir()) == list("0123")
"""

HELPED = """
import threading
import numpy as np
from candle_convert.runtime.execute import compile_ahead as preparing
from candle_convert.runtime.execute.interpreter import CLOSED, TEAM_WORDS
from candle_convert.runtime.execute.thread_team import HELPERS

preparing.cores = lambda: 2
closed = np.full(TEAM_WORDS, CLOSED)
HELPERS.call(closed, 2)
assert threading.active_count() == 3
preparing.run_all([lambda: None] * 3)
assert threading.active_count() == 1
HELPERS.call(closed, 1)
assert threading.active_count() == 2
"""

LOADED = """
import threading
import numpy as np
from candle_convert.runtime.jit import code_cache as machine
from candle_convert.runtime.execute.interpreter import CLOSED, TEAM_WORDS
from candle_convert.runtime.execute.thread_team import HELPERS

loading, read = [], machine.read_code


def seen(path):
    loading.append(threading.current_thread())
    return read(path)


machine.read_code = seen
HELPERS.call(np.full(TEAM_WORDS, CLOSED), 2)
HELPERS.dismiss()
assert loading
assert set(loading) == {threading.main_thread()}
"""

INTERRUPTED = """
import numpy as np
from candle_convert.runtime.execute import thread_team as team
from candle_convert.runtime.plan.kernel_api import JUMP


class Interrupted:
    @property
    def call(self):
        raise KeyboardInterrupt


code = team.Code([(JUMP, 1, 0, 0)], np.zeros(1, np.int64))
walk, team.walk = team.walk, Interrupted()
try:
    code.walk(0, 1, 3)
except KeyboardInterrupt:
    team.HELPERS.dismiss()
    team.walk = walk
    code.walk(0, 1, 3)
"""

LEFT = """
import sys, threading
from candle_convert.runtime.execute import compile_ahead as preparing

never = threading.Lock()
never.acquire()
preparing.cores = lambda: 2


def task():
    open(int(sys.argv[1]), "wb", buffering=0, closefd=False).write(b".")
    never.acquire()


preparing.run_all([task, task])
"""

IN_NONE = """
import os
from candle_convert.runtime.execute import compile_ahead as preparing


def none():
    raise BlockingIOError


preparing.cores, os.fork = lambda: 2, none
preparing.run_all([lambda: 1 / 0] * 3)
"""


def command(words, folder=None):
    """Run Python, with a cache in a folder or that of all tests."""
    environment = os.environ if folder is None else {**os.environ, "XDG_CACHE_HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, *map(str, words)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.skipif(not code_cache.supported(), reason="kernels are kept for Linux on x86-64")
def test_after_warming_nothing_is_compiled_for_any_shape(tmp_path):
    """Kernels are compiled in the cache of all tests; what warming asks for there, and nothing else, is in a cache of
    its own, but for one kernel."""
    model = written(tmp_path / "lm.gguf")
    kernels = tmp_path / "candle-convert" / "kernels"
    kernels.mkdir(mode=0o700, parents=True)
    command(["-c", WARM, model, tmp_path / "asked"])
    for path in (tmp_path / "asked").read_text().splitlines():
        shutil.copy(path, kernels)
    asked = sorted(kernels.iterdir())
    assert len(asked) > 10
    min(asked, key=lambda path: path.stat().st_size).unlink()
    warm = command(["-m", "candle_convert.convert", "cache", "warm", model], tmp_path)
    assert "lm.gguf: " in warm.stdout
    assert "compiling 1 kernel for this processor, once per machine" in warm.stderr
    kept = sorted(kernels.iterdir())
    assert [path for path in kept if path.is_file()] == asked
    command(["-c", AGAIN, model], tmp_path)
    assert sorted(kernels.iterdir()) == kept
    again = command(["-m", "candle_convert.convert", "cache", "warm", model, "--json"], tmp_path)
    assert json.loads(again.stdout)["models"][0]["files"] == 0
    assert again.stderr == ""


@pytest.mark.skipif(not code_cache.supported(), reason="kernels are kept for Linux on x86-64")
def test_another_level_is_compiled_by_a_process_of_its_own(tmp_path):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "g.onnx")
    words = ["-m", "candle_convert.convert", "cache", "warm", tmp_path / "g.onnx", "--json", "--level"]
    assert json.loads(command([*words, "generic"], tmp_path).stdout)["models"][0]["files"] > 0
    assert json.loads(command([*words, "generic"], tmp_path).stdout)["models"][0]["files"] == 0
    refused = subprocess.run([sys.executable, *map(str, words), "avx3"], capture_output=True, text=True, check=False)
    assert (refused.returncode, "E-CPU-LEVEL" in refused.stdout + refused.stderr) == (2, True)


@pytest.mark.parametrize("name", FAMILIES)
def test_models_of_the_library_are_whole(name):
    model = synthetic_model(name, "q8_0")
    assert model.vocabulary == 512
    assert len(model.graph.nodes) > 20


def test_info_and_clear(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "candle-convert" / "kernels" / "old"
    folder.mkdir(parents=True)
    (tmp_path / "keep").write_bytes(b"not ours")
    (folder / "one").write_bytes(b"123")
    (folder.parent / "two").write_bytes(b"12345")
    (folder.parent / "link").symlink_to(tmp_path / "keep")
    os.utime(folder / "one", (time.time() - 9 * 86400,) * 2)
    assert run(["cache", "info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folders"] == [
        {"name": "kernels", "files": 3, "bytes": 8 + (folder.parent / "link").lstat().st_size}
    ]
    assert run(["cache", "clear", "--unused", "5"]) == 0
    assert not folder.exists()
    assert (folder.parent / "two").exists()
    assert run(["cache", "clear"]) == 0
    assert (
        list(tmp_path.iterdir()) == [tmp_path / "candle-convert", tmp_path / "keep"]
        or not (folder.parent / "two").exists()
    )
    assert (tmp_path / "keep").read_bytes() == b"not ours"


@pytest.mark.skipif(not code_cache.supported(), reason="processes are copied on Linux")
def test_tasks_are_done_in_other_processes_and_told(tmp_path):
    # other tests load libraries with threads, beside which nothing is forked
    (tmp_path / "tasks").mkdir()
    command(["-c", IN_PROCESSES, tmp_path / "tasks"], tmp_path)


@pytest.mark.skipif(not code_cache.supported(), reason="processes are copied on Linux")
def test_where_no_process_can_be_started_nothing_is_done_beforehand(tmp_path):
    command(["-c", IN_NONE], tmp_path)


@pytest.mark.skipif(not code_cache.supported(), reason="processes are copied on Linux")
def test_a_process_that_never_ends_is_not_waited_for(tmp_path):
    (tmp_path / "tasks").mkdir()
    command(["-c", STUCK, tmp_path / "tasks"], tmp_path)


@pytest.mark.skipif(not code_cache.supported(), reason="processes are copied on Linux")
def test_no_helping_thread_is_there_while_processes_are_copied(tmp_path):
    command(["-c", HELPED], tmp_path)


@pytest.mark.skipif(not code_cache.supported(), reason="kernels are kept for Linux on x86-64")
def test_helping_threads_load_nothing(tmp_path):
    # one that held the locks for it while processes were copied let these wait for ever
    command(["-c", LOADED], tmp_path)


def test_an_interrupt_before_a_run_begins_lets_its_helpers_go(tmp_path):
    command(["-c", INTERRUPTED], tmp_path)


@pytest.mark.skipif(not code_cache.supported(), reason="processes are copied on Linux")
def test_processes_end_with_the_one_that_started_them():
    told, telling = os.pipe()
    with (
        subprocess.Popen([sys.executable, "-c", LEFT, str(telling)], pass_fds=[telling]) as first,
        open(told, "rb", buffering=0) as pipe,
    ):
        os.close(telling)
        assert pipe.read(1) + pipe.read(1) == b".."
        first.kill()
        assert select.select([pipe], [], [], 60)[0]
        assert pipe.read(1) == b""


def test_another_level_takes_the_words_of_the_command(tmp_path, capfd):
    """Not those of the program that calls the command."""
    assert run(["cache", "warm", str(tmp_path / "none.gguf"), "--level", "generic"]) == 7
    assert "none.gguf: no such file" in capfd.readouterr().err
