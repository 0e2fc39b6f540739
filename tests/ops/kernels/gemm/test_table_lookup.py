"""Blocks whose codes are looked up in a table, one row of activations on AVX2, against gguf-py's decoders."""

import os
import subprocess
import sys
from pathlib import Path

import candle_convert
import pytest
from candle_convert.runtime.jit import isa

ROOT = Path(candle_convert.__file__).parents[1]
SCRIPT = """
import gguf
import numpy as np
from candle_convert.ops.kernels.gemm.gemv import gemv
from candle_convert.runtime.execute.shape_warmup import ShapeWarmup
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import DTYPES, F32
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor

ShapeWarmup.compile_later = ShapeWarmup.imminent_kernels = lambda *arguments: []  # compiles what is run
scales = {"iq4_nl": (0,), "q2_k": (80, 82), "q3_k": (108,), "iq4_xs": (0,)}
rng = np.random.default_rng(0)
x = rng.standard_normal((1, 512), np.float32)
for name, places in scales.items():
    kind = gguf.GGMLQuantizationType[name.upper()]
    length, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (45 * 512 // length, size), dtype=np.uint8)
    for at in places:
        blocks[:, at : at + 2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    data = blocks.reshape(45, -1)
    graph = Graph()
    given = graph.values["x"] = Value("x", F32, x.shape)
    weight = graph.values["w"] = Value("w", DTYPES[name], (45, 512))
    graph.inputs, graph.weights["w"] = [given], StoredTensor(DTYPES[name], (45, 512), Held(data.tobytes()))
    build = Builder(graph)
    graph.outputs = [build.add("MatMul", [given, build.add("Transpose", [weight], {"perm": [1, 0]})])]
    got = Session(graph, native=True).run(None, {"x": x})[0]
    wanted = x.astype(np.float64) @ gguf.quants.dequantize(data, kind).T.astype(np.float64)
    assert np.linalg.norm(got - wanted) < 1e-5 * np.linalg.norm(wanted), name
    assert "x86.avx2.permps" in gemv(name, 1).text(), name
"""


def test_tables_are_looked_up_by_instructions_of_avx2(tmp_path):
    if "avx2" not in [level.name for level in isa.available_levels()]:
        pytest.skip("the processor has no AVX2")
    environment = {**os.environ, isa.VARIABLE: "avx2", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", SCRIPT], env=environment, check=True, cwd=tmp_path)
