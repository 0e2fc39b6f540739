"""Lengths of later runs: other feeds by symbolic dimensions, and that what they need is compiled in the background."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from candle_convert.runtime.ir.graph import Value
from candle_convert.runtime.jit import code_cache
from candle_convert.runtime.region.expected_shapes import BATCHED_LENGTHS, LENGTHS, MAX_PLANNED_NODES, expected_feeds
from candle_convert.runtime.tensor.dtype import DTYPES

NETWORK = """
import json
import sys
import numpy as np
from candle_convert.runtime.execute import compile_ahead as preparing
from candle_convert.runtime.base.compile_progress import on_compile
from candle_convert.runtime.execute.background_compile import BACKGROUND
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.tensor.dtype import DTYPES
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.session import Session

preparing.cores = lambda: 2
said = []


def say(progress):
    state = f"{progress.compiled} of {progress.total}"
    if progress.total and state not in said[-1:]:
        print(state)
        said.append(state)


on_compile(say)
graph = Graph(name="g")
x = graph.values["x"] = Value("x", DTYPES["f32"], tuple(json.loads(sys.argv[1])))
graph.inputs.append(x)
build = Builder(graph)
y = build.add("MatMul", [x, build.constant(np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64), "float32")])
y = build.add("Add", [build.add("Tanh", [y]), x])
build.add("Transpose", [y], {"perm": [1, 0, 2]}, outputs=[Value("y")])
graph.outputs.append(graph.values["y"])
session = Session(graph, threads=2, native=True)
for shape in json.loads(sys.argv[2]):
    session.run(None, {"x": np.ones(shape, np.float32)})
    BACKGROUND.finish()
print("numba" in sys.modules)
"""


def value(name, *shape):
    return Value(name, DTYPES["f32"], shape)


def shapes(inputs, feeds, nodes=10):
    return [tuple(np.shape(feed) for feed in found) for found in expected_feeds(inputs, feeds, nodes)]


def test_lengths_of_one_name_change_together_and_sums_follow():
    inputs = [
        value("x", "batch", "length"),
        value("mask", "batch", "length + past"),
        value("past", "batch", "past", 8),
        value("one"),
    ]
    feeds = [
        np.ones((1, 7), np.float32),
        np.ones((1, 9), np.float32),
        np.ones((1, 2, 8), np.float32),
        np.float32(3) * np.ones(()),
    ]
    found = shapes(inputs, feeds)
    assert all(x[0] == mask[0] == past[0] and mask[1] == x[1] + past[1] and past[2] == 8 for x, mask, past, _ in found)
    assert {x for x, _, past, _ in found if past[1] == 2 and x[0] == 1} == {(1, length) for length in LENGTHS}
    assert {(2, length) for length in BATCHED_LENGTHS} <= {x for x, *_ in found}
    assert len(found) == len(set(found))
    assert all(made[3] is feeds[3] for made in expected_feeds(inputs, feeds, 10))


def test_pictures_double_and_halve_and_what_is_fixed_stays():
    picture = np.ones((1, 3, 32, 48), np.float32)
    found = shapes([value("x", "batch", 3, "height", "width")], [picture])
    assert {(1, 3, 64, 48), (1, 3, 16, 48), (1, 3, 32, 96), (1, 3, 32, 24), (2, 3, 32, 48), (8, 3, 32, 48)} <= {
        x for (x,) in found
    }
    assert shapes([value("x", 1, 3, 32, 48)], [picture]) == []
    assert shapes([value("x", "n"), value("list")], [np.ones(4), [1, 2]])[0] == ((1,), (2,))


def test_large_graphs_are_planned_for_few_lengths():
    inputs, feeds = [value("x", "n")], [np.ones(7)]
    assert len(expected_feeds(inputs, feeds, MAX_PLANNED_NODES // 3)) == 3
    assert expected_feeds(inputs, feeds, MAX_PLANNED_NODES + 1) == []


def ran(folder, *feeds, dims=("batch", "length", 64)):
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder)}
    words = [sys.executable, "-c", NETWORK, json.dumps(dims), json.dumps(feeds)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


def kernels(folder):
    return {path.name for path in (folder / "candle-convert" / "kernels").iterdir() if path.is_file()}


@pytest.mark.skipif(not code_cache.supported(), reason="kernels are kept for Linux on x86-64")
def test_other_shapes_are_compiled_in_the_background_of_the_first_run(tmp_path):
    first = ran(tmp_path, (1, 7, 64))
    kept = kernels(tmp_path)
    assert ran(tmp_path / "fixed", (1, 7, 64), dims=(1, 7, 64)) == first
    needed = kernels(tmp_path / "fixed")
    assert first == [*(f"{count} of {len(needed)}" for count in range(len(needed) + 1)), "False", ""]
    assert needed < kept
    assert ran(tmp_path, (1, 1, 64), (1, 7, 64), (3, 1, 64), (1, 333, 64), (2, 90, 64), (5, 2, 64)) == ["False", ""]
    assert kernels(tmp_path) == kept
    for name in kept - needed:
        (tmp_path / "candle-convert" / "kernels" / name).unlink()
    assert ran(tmp_path, (1, 7, 64)) == ["False", ""]
    assert kernels(tmp_path) == needed  # a note says that they are there, and they are not looked for
    (note,) = (tmp_path / "candle-convert" / "shapes").iterdir()
    note.unlink()
    assert ran(tmp_path, (1, 7, 64)) == ["False", ""]
    assert kernels(tmp_path) == kept
    assert note.exists()


@pytest.mark.skipif(not code_cache.supported(), reason="kernels are kept for Linux on x86-64")
def test_tasks_run_again_after_a_pause(tmp_path):
    """In a process without threads, which can fork."""
    done = subprocess.run([sys.executable, "-c", PAUSED, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "copy").exists()


PAUSED = """
import functools, shutil, sys, time
from pathlib import Path
from candle_convert.runtime.execute.background_compile import BackgroundCompiler

compiler, path = BackgroundCompiler(), Path(sys.argv[1], "done")
compiler.add(lambda: time.sleep(100) if not path.exists() else None)
compiler.pause()
path.touch()
compiler.add(functools.partial(shutil.copy, path, path.with_name("copy")))
compiler.finish()
"""
