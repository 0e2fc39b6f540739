"""Products of many rows of activations with the integers of blocks, against NumPy's integers and gguf-py's
decoders."""

import re

import gguf
import numpy as np
import pytest
from candle_convert.ops.kernels.gemm import packed_gemm
from candle_convert.ops.kernels.gemm.dispatch import available, find_variant
from candle_convert.ops.quants.llvm import codes
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.jit.isa import features
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.block_codec import codecs
from candle_convert.runtime.tensor.dtype import F32, GROUPED_BLOCK_TYPES, STORAGE_TYPES
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tests.oracles.native_vs_numpy import launched
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


def test_every_type_of_codes_is_tested():
    assert {*ONES, *GROUPED} == set(codes()) <= {dtype.name for dtype in codecs()}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_are_multiplied_exactly(name):
    tensor, numbers = whole_weight(name, 75, 256)
    session = linear(tensor)
    for rows in (2, 5, 8, 9, 11, 12, 27):
        x = whole_rows(rows, 256)
        np.testing.assert_array_equal(
            session.run(None, {"x": x.astype(np.float32)})[0], (x @ numbers.T).astype(np.float32)
        )


@pytest.mark.parametrize(("rows", "count", "columns"), [(9, 31, 1056), (800, 33, 64), (40, 256, 32)])
def test_many_rows_and_long_rows(rows, count, columns):
    if not WHOLE:
        pytest.skip("this processor does not multiply bytes")
    tensor, numbers = whole_weight("q8_0", count, columns)
    x = whole_rows(rows, columns)
    one, three = (linear(tensor, threads=threads).run(None, {"x": x.astype(np.float32)})[0] for threads in (1, 3))
    np.testing.assert_array_equal(one, (x @ numbers.T).astype(np.float32))
    np.testing.assert_array_equal(three, one)


WAYS = [("emulated", name) for name in ("q8_0", "q4_k", "q6_k", "q2_k")]
WAYS += [
    (way, name) for way in ("16-bit pairs",) for name in codes() if "avx2" in features() and find_variant(name, way)
]
WAYS += [("AVX-VNNI", name) for name in ("q8_0", "q4_k", "q6_k", "q2_k") if {"avx512vnni", "avx512vl"} <= features()]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("way", "name"), WAYS)
def test_other_ways_multiply_exactly(way, name):
    """What kernels do with registers of tiles, in vectors, and with vectors of 32 bytes, on a processor that takes
    better ways."""
    tensor, numbers = whole_weight(name, 43, 256)
    weight = np.frombuffer(tensor.raw(), np.uint8)
    bias = np.arange(43, dtype=np.float32)
    for rows in (5, 16, 17, 50):
        x = whole_rows(rows, 256)
        given, y = x.astype(np.float32), np.full((rows, 43), np.nan, np.float32)
        tiles = np.empty(packed_gemm.tiles_nbytes(name, way, rows, 256), np.uint8)
        scratch = np.full(2 * packed_gemm.scratch_nbytes(name, way, rows) + 64, 255, np.uint8)
        launched(
            packed_gemm.pack_tiles(name, packed_gemm.tile_layout(name, way)),
            source=given.ctypes.data,
            target=tiles.ctypes.data,
            count=rows,
            length=256,
        )
        launched(
            packed_gemm.packed_gemm(name, way),
            weight=weight.ctypes.data,
            tiles=tiles.ctypes.data,
            y=y.ctypes.data,
            bias=bias.ctypes.data,
            added=0,
            added_row=0,
            count=43,
            row_bytes=weight.size // 43,
            length=256,
            tokens=rows,
            scratch=scratch.ctypes.data,
        )
        np.testing.assert_array_equal(y, (x @ numbers.T + np.arange(43)).astype(np.float32))


INSTRUCTIONS = {
    "ldtilecfg": rb"\xc4[\xc2\xe2]\x78\x49[\x00-\x7f]",
    "tilerelease": rb"\xc4\xe2\x78\x49\xc0",
    "tilezero": rb"\xc4\xe2\x7b\x49[\xc0-\xff]",
    "tileloadd": rb"\xc4[\x82\xa2\xc2\xe2]\x7b\x4b",
    "tilestored": rb"\xc4[\x82\xa2\xc2\xe2]\x7a\x4b",
    "tdpbsud": rb"\xc4\xe2[\x40-\x7f]\x5e[\xc0-\xff]",
    "tdpbf16ps": rb"\xc4\xe2[\x42\x4a\x52\x5a\x62\x6a\x72\x7a]\x5c[\xc0-\xff]",
}
"""How they begin in machine code: three bytes of VEX, the operation, and where registers are named, these."""


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


@pytest.mark.parametrize(("name", "word"), [("q4_k", "vpdpbusd"), ("f16", "vpdpwssd")])
def test_instructions_of_avx_vnni_are_assembled(name, word):
    """In the encoding of processors without AVX-512; those that run them here have the other one."""
    written, code = assembled(packed_gemm.packed_gemm(name, "AVX-VNNI"), "alderlake")
    assert re.search(rf"{{vex}}\s+{word}\s[^\n]*%ymm", written)
    assert re.search(rb"\xc4[\x42\x62\xc2\xe2][\x05-\x7d][\x50\x52]", code)
    assert "zmm" not in written


@pytest.mark.parametrize("name", ["q8_0", "q6_k", "f16", "bf16"])
def test_instructions_of_tiles_are_assembled(name):
    """For a processor that has them; none was there to run them."""
    written, code = assembled(packed_gemm.packed_gemm(name, "AMX"), "sapphirerapids")
    for word, pattern in INSTRUCTIONS.items():
        assert (word in written) == (word not in (("tdpbsud", "tilezero") if "f16" in name else ("tdpbf16ps",)))
        assert len(re.findall(pattern, code, re.DOTALL)) == len(re.findall(rf"\b{word}\b", written)), word
