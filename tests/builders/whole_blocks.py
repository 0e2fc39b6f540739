"""Weights of every block type whose elements are integers, and the instructions of kernels that multiply them."""

import re

import gguf
import numpy as np
import pytest
from candle_convert.ops.kernels.gemm.dispatch import available
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import F32, GROUPED_BLOCK_TYPES, STORAGE_TYPES
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from llvmlite import binding

ONES = {
    "q4_0": [0],
    "q4_1": [0, 2],
    "q5_0": [0],
    "q5_1": [0, 2],
    "q8_0": [0],
    "q2_k": [80, 82],
    "q3_k": [108],
    "q4_k": [0, 2],
    "q5_k": [0, 2],
    "q6_k": [208],
    "iq4_nl": [0],
    "iq4_xs": [0],
    "mxfp4": [],
}
"""Where half-precision scales are in a block."""
GROUPED = [dtype.name for dtype in GROUPED_BLOCK_TYPES]
WHOLE = [name for name in (*ONES, *GROUPED) if available(name)]


def whole_weight(name, rows, columns):
    """A tensor of random codes whose scales of half precision are 1, and its numbers, which are whole."""
    dtype = STORAGE_TYPES[name]
    data = np.random.default_rng(0).integers(0, 256, (rows, dtype.nbytes(columns)), dtype=np.uint8)
    blocks = data.reshape(-1, dtype.block_nbytes)
    if name in GROUPED:
        numbers = whole_groups(blocks, dtype).reshape(rows, columns)
        return StoredTensor(dtype, (rows, columns), Held(data.tobytes())), numbers
    for at in ONES[name]:
        blocks[:, at : at + 2] = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    if name == "mxfp4":
        blocks[:, 0] = 128
    numbers = gguf.quants.dequantize(data, gguf.GGMLQuantizationType(dtype.ggml)).reshape(rows, columns)
    assert (numbers == np.rint(numbers)).all()
    return StoredTensor(dtype, (rows, columns), Held(data.tobytes())), numbers.astype(np.int64)


def whole_groups(blocks, dtype):
    """Scales of 1 in blocks of grouped integers, and minima of 3 in those that have some; the numbers."""
    stored = blocks.shape[1] - 16 * dtype.bits
    scales = blocks[:, :stored].view(np.float32)
    scales[:] = 1
    shifted = dtype.name.startswith("u")
    if shifted:
        scales[:, scales.shape[1] // 2 :] = 3
    packed = blocks[:, stored:]
    if dtype.bits == 4:
        pairs = packed.reshape(-1, 2, 32)
        numbers = np.stack([pairs & 15, pairs >> 4], axis=2).reshape(len(blocks), 128).astype(np.int64) - 8
    else:
        numbers = packed.view(np.int8).astype(np.int64)
    return numbers - 3 * shifted


def whole_rows(rows, columns):
    """Rows of integers that rounding leaves alone: 127 is the largest of each run."""
    rng = np.random.default_rng(1)
    x = rng.integers(-3, 4, (rows, columns // 32, 32))
    x[:, :, 5] = 127 * rng.choice([-1, 1], x.shape[:2])
    return x.reshape(rows, columns)


def linear(tensor, **options):
    graph = Graph()
    x = graph.values["x"] = Value("x", F32, ("n", tensor.shape[1]))
    value = graph.values["weight"] = Value("weight", tensor.dtype, tensor.shape)
    graph.inputs, graph.weights["weight"] = [x], tensor
    build = Builder(graph)
    graph.outputs = [build.add("MatMul", [x, build.add("Transpose", [value], {"perm": [1, 0]})])]
    return Session(graph, native=True, activations="q8", **options)


def innermost_loops(assembly):
    """The instructions of each loop without another one in it."""
    blocks = re.findall(r"^(\.LBB\w+):(.*?)(?=^\.LBB\w+:|\Z)", assembly, re.DOTALL | re.MULTILINE)
    ends = [(block, re.search(rf"\sj\w+\s+{re.escape(label)}$", block, re.MULTILINE)) for label, block in blocks]
    return [block[: jump.end()].splitlines() for block, jump in ends if jump]


def assembled(kernel, cpu):
    """A kernel as assembly and as machine code for some processor."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    binding.initialize_native_asmparser()
    text = kernel.text()
    if "x86_64" not in text:
        pytest.skip("the assembler is that of another processor")
    machine = binding.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(cpu, opt=2, reloc="pic")
    module = binding.parse_assembly(text)
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)
    return machine.emit_assembly(module), machine.emit_object(module)
