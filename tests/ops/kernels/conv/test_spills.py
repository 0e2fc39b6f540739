"""Register tiles of f32 products at AVX2: in their innermost loops no vector is stored to the stack or loaded from it.
For loops over one row, LLVM's schedule for some processors reloads addresses, which this allows."""

import json
import os
import subprocess
import sys

import pytest
from candle_convert.runtime.jit import isa

SCRIPT = r"""
import importlib, json, re, sys
from candle_convert.ops.kernels.gemm import microkernel_f32

vectors, *names = sys.argv[1:]
microkernel_f32.TILE_VECTORS = int(vectors) or microkernel_f32.TILE_VECTORS
from candle_convert.runtime.jit.numba_lazy import binding

emit_object, texts = binding.TargetMachine.emit_object, []


def emitted(machine, module):
    texts.append(machine.emit_assembly(module))
    return emit_object(machine, module)


binding.TargetMachine.emit_object = emitted
for name in names:
    module, kernel = name.split(":")
    module = importlib.import_module(f"candle_convert.ops.{module}")
    eval(f"module.{kernel}").code()
    blocks = re.findall(r"^(\.LBB\w+):(.*?)(?=^\.LBB\w+:|\Z)", texts[-1], re.DOTALL | re.MULTILINE)
    ends = [(block, re.search(rf"\sj\w+\s+{re.escape(label)}$", block, re.MULTILINE)) for label, block in blocks]
    loops = [block[: jump.end()] for block, jump in ends if jump]
    tiles = [loop for loop in loops if len(re.findall(r"\svfmadd", loop)) >= 8]
    lines = [line.strip() for loop in tiles for line in loop.splitlines()]
    spilled = [line for line in lines if re.search(r"\(%rsp\).*[xyz]mm|[xyz]mm.*\(%rsp\)", line)]
    print(json.dumps([name, len(tiles), spilled]))
"""
KERNELS = (
    "conv.conv_kernel:im2col_gemm",
    "kernels.conv.implicit_gemm:_KERNELS[False, 1, True, False]",
    "kernels.conv.implicit_gemm:_KERNELS[True, 1, False, True]",
    "kernels.conv.banded_gemm:_KERNELS[True, 1]",
    "kernels.conv.channels_vectorized:convolve_channels",
    "kernels.conv.direct_rows:direct_rows",
    "kernels.conv.winograd.winograd:_KERNELS[4].fused",
    "linalg.panel_product:dense_product",
)


def innermost_loops(vectors, *kernels):
    """For each kernel its loops of products and the instructions in them that spill vectors; tiles have `vectors`
    vectors of 16 in a row, 0 for as many as they have."""
    environment = {**os.environ, isa.VARIABLE: "avx2"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(vectors), *kernels],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {name: (tiles, spilled) for name, tiles, spilled in map(json.loads, done.stdout.splitlines())}


@pytest.mark.skipif("avx2" not in isa.present(), reason="the processor has no AVX2")
def test_tiles_stay_in_registers():
    for name, (tiles, spilled) in innermost_loops(0, *KERNELS).items():
        assert tiles > 0, name
        assert not spilled, (name, spilled)


@pytest.mark.skipif("avx2" not in isa.present(), reason="the processor has no AVX2")
def test_taller_tiles_are_seen_to_spill():
    """6 x 32 sums are 24 of the 16 registers."""
    ((tiles, spilled),) = innermost_loops(2, KERNELS[1]).values()
    assert tiles > 0
    assert spilled
