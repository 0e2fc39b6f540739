"""Weights are held once, as they are stored: a process that multiplies with 200 MB of blocks does not grow far beyond
them."""

import os
import subprocess
import sys

import pytest
from candle_convert.tests.builders.paths import REPOSITORY

SCRIPT = """
import os, sys
import numpy as np
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.tensor.dtype import DTYPES, F32
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.file import Source
from candle_convert.runtime.tensor.storage import Region
from candle_convert.runtime.tensor.stored_tensor import StoredTensor

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024

def session(path, name, rows, columns):
    graph, dtype = Graph(), DTYPES[name]
    x = graph.values["x"] = Value("x", F32, ("n", columns))
    graph.inputs = [x]
    tensor = StoredTensor(dtype, (rows, columns), Region(Source(path), 0, dtype.nbytes(columns) * rows))
    weight = graph.values["w"] = Value("w", dtype, tensor.shape)
    graph.weights["w"] = tensor
    build = Builder(graph)
    graph.outputs = [build.add("MatMul", [x, build.add("Transpose", [weight], {"perm": [1, 0]})])]
    return Session(graph, threads=2, native=True)

path, name, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
for count in (16, rows):
    before = peak()
    made = session(path, name, count, 2048)
    for tokens in (1, 20):
        made.run(None, {"x": np.ones((tokens, 2048), np.float32)})
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize(("name", "row"), [("q4_k", 1152), ("f16", 4096)])
def test_peak_memory_is_that_of_the_file(tmp_path, name, row):
    rows = 100_000_000 // row
    path = tmp_path / "weights"
    with open(path, "wb") as file:
        os.truncate(file.fileno(), rows * row)
    command = [sys.executable, "-c", SCRIPT, str(path), name, str(rows)]
    root = str(REPOSITORY)
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    assert int(done.stdout) < rows * row + 30_000_000
