"""Kept kernels: a second process runs the machine code of the first, closures and calls of the C library included, and
compiles nothing."""

import functools
import gc
import os
import subprocess
import sys

import pytest
from candle_convert.runtime.jit import code_cache, isa, kernel_store, source_digest
from candle_convert.runtime.jit.range_kernel import RangeKernel
from candle_convert.runtime.plan import kernel_api

pytestmark = pytest.mark.skipif(not code_cache.supported(), reason="kernels are kept for Linux on x86-64")
PROGRAM = """
import sys
import numpy as np
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.tensor.dtype import DTYPES
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor

graph = Graph(name="g")
x = Value("x", DTYPES["f32"], (2, 3, 64))
graph.inputs.append(x)
graph.values["x"] = x
build = Builder(graph)
y = build.add("RMSNormalization", [x, build.constant(np.ones(64, np.float32), "float32")])
w = graph.values["w"] = Value("w", DTYPES["q4_0"], (64, 64))
graph.weights["w"] = StoredTensor(w.dtype, w.shape, Held((np.float16(0.01).tobytes() + bytes(range(7, 135, 8))) * 128))
y = build.add("MatMul", [y, build.add("Transpose", [w], {"perm": [1, 0]})])
y = build.add("Transpose", [build.add("Cos", [y])], {"perm": [1, 0, 2]})
build.add("Softmax", [build.add("Asinh", [y])], {"axis": -1}, outputs=[Value("y")])
graph.outputs.append(graph.values["y"])
feed = np.linspace(-3, 3, 384, dtype=np.float32).reshape(2, 3, 64)
for threads in (1, 3):
    print(Session(graph, threads=threads, native=True).run(None, {"x": feed})[0].tobytes().hex())
if sys.argv[1] == "again":
    assert not {"numba", "llvmlite.binding", "hashlib", "ml_dtypes"} & set(sys.modules)
"""


@pytest.mark.parametrize("level", [isa.available_levels()[index].name for index in (0, -1)])
def test_a_second_process_compiles_nothing_and_loads_no_compiler(level, tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), isa.VARIABLE: level}
    words = [sys.executable, "-c", PROGRAM]
    said = [
        subprocess.run([*words, mode], env=environment, capture_output=True, text=True, check=False)
        for mode in ("first", "again")
    ]
    assert [done.returncode for done in said] == [0, 0], said[-1].stderr
    assert said[0].stdout == said[1].stdout


def made(value):
    def function():
        return value

    return function


def test_what_functions_close_over_tells_them_apart():
    texts = {
        kernel_store.fingerprint(made(value)) for value in (1, 2, 1.0, "1", (1,), [1], None, made(1), made(2), {"a": 1})
    }
    assert len(texts) == 10
    assert kernel_store.fingerprint(made(made(3))) == kernel_store.fingerprint(made(made(3)))
    partials = (
        functools.partial(made, 1),
        functools.partial(made, 2),
        functools.partial(made, value=1),
        functools.partial(kernel_store.fingerprint, 1),
    )
    assert len(set(map(kernel_store.fingerprint, partials))) == 4
    with pytest.raises(kernel_store.UnknownError):
        kernel_store.fingerprint(made(object()))


@pytest.mark.usefixtures("unfrozen")
def test_every_kernel_can_be_kept():
    kernel_api.load_planners()
    kernels = [
        item
        for item in gc.get_objects()
        if type(item) is RangeKernel and item.fingerprint_parts[0].__module__.startswith("candle_convert.ops.")
    ]
    assert len(kernels) > 90
    unknown = []
    for kernel in kernels:
        try:
            kernel_store.fingerprint(kernel.fingerprint_parts)
        except kernel_store.UnknownError:
            unknown.append(kernel)
        except source_digest.ChangedError:
            pytest.skip("sources were written to while the tests run")
    assert not unknown
