"""Products of many rows of activations with the integers of blocks, against NumPy's integers and gguf-py's
decoders."""

import re

import numpy as np
import pytest
from candle_convert.ops.kernels.gemm import packed_gemm
from candle_convert.ops.kernels.gemm.dispatch import find_variant
from candle_convert.ops.quants.llvm import codes
from candle_convert.runtime.jit import isa
from candle_convert.runtime.jit.isa import features
from candle_convert.runtime.tensor.block_codec import codecs
from candle_convert.tests.builders.whole_blocks import (
    GROUPED,
    ONES,
    WHOLE,
    assembled,
    innermost_loops,
    linear,
    whole_rows,
    whole_weight,
)
from candle_convert.tests.oracles.native_vs_numpy import launched


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


@pytest.mark.parametrize("name", ["q4_0", "q4_k", "q5_0", "q5_k"])
def test_quads_are_added_in_registers_at_avx2(name, monkeypatch):
    """A loop over quads: unrolled, LLVM adds the products of a run row by row and spills sums."""
    monkeypatch.setattr(isa, "features", lambda: next(each for each in isa.LEVELS if each.name == "avx2").needs)
    written, _ = assembled(packed_gemm.packed_gemm(name, "16-bit pairs"), "haswell")
    loops = [loop for loop in innermost_loops(written) if any("vpmaddubsw" in line for line in loop)]
    assert max(sum("vpmaddubsw" in line for line in loop) for loop in loops) == 8
    assert not [line for loop in loops for line in loop if "(%rsp)" in line or "(%rbx)" in line]
