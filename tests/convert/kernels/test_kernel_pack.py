"""Machine code in the package: with an empty cache, kernels come from the pack and are not compiled, unless their
sources or the processor differ."""

import os
import subprocess
import sys

import pytest
from candle_convert.convert.kernels.pack_kernels import compiled, variants
from candle_convert.runtime.base.errors import UsageError
from candle_convert.runtime.jit import code_cache, isa, kernel_pack
from candle_convert.tests.builders.package_copy import PACKAGE, package_with

pytestmark = pytest.mark.skipif(not code_cache.supported(), reason="kernels are kept for Linux on x86-64")
PROGRAM = """
import sys
import numpy as np
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import F32

graph = Graph(name="g")
graph.inputs = [Value("x", F32, (2, 64))]
graph.values["x"] = graph.inputs[0]
graph.outputs = [Builder(graph).add("Softmax", [graph.inputs[0]], {"axis": -1})]
session = Session(graph, threads=1, native=True)
x = np.linspace(-3, 3, 128, dtype=np.float32).reshape(2, 64)
print(np.abs(session.run(None, {"x": x})[0] - np.exp(x) / np.exp(x).sum(-1, keepdims=True)).max() < 1e-6)
"""
KERNEL, PACK = "ops/nn/softmax_kernel.py", "candle_convert/runtime/jit/kernels.pack"
LEVEL = isa.LEVELS[min(1, len(isa.available_levels()) - 1)]
EXTRAS = frozenset() if LEVEL.name == "generic" else isa.present() & {"avxvnni"}
VARIANT = isa.Variant(LEVEL, EXTRAS)


@pytest.fixture(scope="module")
def kernels():
    """The kernels of `PROGRAM`."""
    return list(compiled(VARIANT, PROGRAM))


@pytest.fixture
def copy(kernels, tmp_path):
    """A copy of the package with a pack of the kernels."""
    package_with(tmp_path, "runtime/jit/kernels.pack", "")
    kernel_pack.write(tmp_path / PACK, kernels)
    return tmp_path


def compiles(folder, level=LEVEL.name):
    """Whether a copy of the package compiles kernels where the cache is empty; the result is right."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "XDG_CACHE_HOME": str(folder / level)}
    environment |= {isa.VARIABLE: level, "CANDLE_COMPILE_COST": str(folder / f"{level}.json")}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True"]
    return (folder / f"{level}.json").exists()


def test_kernels_of_the_pack_are_not_compiled(copy):
    assert not compiles(copy)


def test_without_a_pack_they_are(copy):
    (copy / PACK).unlink()
    assert compiles(copy)


def test_changed_sources_are_compiled(copy):
    package_with(copy, KERNEL, (PACKAGE / KERNEL).read_text() + "\n# changed\n")
    assert compiles(copy)


@pytest.mark.parametrize("level", [level.name for level in isa.available_levels() if level != LEVEL][-1:])
def test_other_processors_compile_their_own(copy, level):
    assert compiles(copy, level)


@pytest.mark.parametrize("kept", [0, 10, 200, -1])
def test_a_damaged_pack_is_not_used(copy, kept):
    data = (copy / PACK).read_bytes()
    (copy / PACK).write_bytes(data[:kept] + bytes(len(data[kept:])))
    assert compiles(copy)


def test_equal_code_is_stored_once(kernels, tmp_path):
    sizes = []
    for count in (1, 2):
        names = [variant.name for variant in isa.VARIANTS[:count]]
        kernel_pack.write(tmp_path / "pack", [(name, kernel, code) for name in names for _, kernel, code in kernels])
        sizes.append((tmp_path / "pack").stat().st_size)
    assert sizes[1] - sizes[0] < 100 * len(kernels)


def test_levels_that_this_machine_lacks_are_refused():
    with pytest.raises(UsageError, match="kernels of level 'avx3' cannot be compiled"):
        variants(["avx3"])
