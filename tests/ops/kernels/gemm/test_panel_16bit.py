"""Products of many rows with weights of f16 and bf16 by instructions for numbers of 16 bits: integers are exact,
roundings as stated."""

import numpy as np
import pytest
from candle_convert.ops.kernels.gemm import packed_gemm
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.jit import isa
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import DTYPES, F32
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tests.builders.whole_blocks import assembled, innermost_loops
from candle_convert.tests.oracles.native_vs_numpy import launched

NEEDS = {
    "VNNI": {"avx512vnni"},
    "BF16": {"avx512bf16"},
    "AVX-VNNI": {"avx512vnni", "avx512vl"},
    "16-bit pairs": {"avx2"},
}
"""Instructions of AVX-VNNI are those of AVX-512 here."""
PLAIN = [(name, way) for name in ("f16", "bf16") for way, needs in NEEDS.items() if needs <= isa.features()]
HERE = [*[each for each in PLAIN if each != ("f16", "BF16")], ("f16", "emulated"), ("bf16", "emulated")]
"""The last ones do what AMX does with vectors."""
WHOLE = ("VNNI", "AVX-VNNI", "16-bit pairs")


def narrowed(name, numbers):
    """Numbers of a type, and what f32 makes of them."""
    if name == "f16":
        made = numbers.astype(np.float16)
        return made.view(np.uint16), made.astype(np.float32)
    bits = numbers.astype(np.float32).view(np.uint32)
    made = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return made, (made.astype(np.uint32) << 16).view(np.float32)


def product(name, way, x, patterns, bias=None):
    """x [rows, n] times a weight [count, n], by two parts of a kernel."""
    (rows, length), count = x.shape, len(patterns)
    given, weight = np.ascontiguousarray(x, np.float32), np.ascontiguousarray(patterns)
    y = np.full((rows, count), np.nan, np.float32)
    tiles = np.empty(packed_gemm.tiles_nbytes(name, way, rows, length), np.uint8)
    scratch = np.full(2 * packed_gemm.scratch_nbytes(name, way, rows) + 64, 255, np.uint8)
    shift = 0 if bias is None else bias.ctypes.data
    launched(
        packed_gemm.pack_tiles(name, packed_gemm.tile_layout(name, way)),
        source=given.ctypes.data,
        target=tiles.ctypes.data,
        count=rows,
        length=length,
    )
    launched(
        packed_gemm.packed_gemm(name, way),
        weight=weight.ctypes.data,
        tiles=tiles.ctypes.data,
        y=y.ctypes.data,
        bias=shift,
        added=0,
        added_row=0,
        count=count,
        row_bytes=2 * length,
        length=length,
        tokens=rows,
        scratch=scratch.ctypes.data,
    )
    return y


@pytest.mark.parametrize(("name", "way"), HERE)
@pytest.mark.parametrize(
    ("rows", "count", "length"), [(5, 31, 96), (6, 64, 544), (13, 33, 256), (27, 75, 1056), (780, 3, 32)]
)
def test_whole_numbers_are_multiplied_exactly(name, way, rows, count, length):
    rng = np.random.default_rng(0)
    patterns, numbers = narrowed(name, rng.integers(-128, 129, (count, length)))
    x = rng.integers(-3, 4, (rows, length // 32, 32))
    x[:, :, 5] = 2047 if way in WHOLE or (name, way) == ("f16", "emulated") else 128
    x, bias = x.reshape(rows, length), np.arange(count, dtype=np.float32)
    np.testing.assert_array_equal(
        product(name, way, x, patterns, bias), (x @ numbers.T.astype(np.int64) + bias).astype(np.float32)
    )


@pytest.mark.parametrize(("name", "way"), HERE)
def test_what_is_rounded_is_small(name, way):
    """To a 2^-12th of the greatest of 32 activations, or by bfloat16's 2^-9th; weights by a 2^-16th of the greatest of
    32."""
    rng = np.random.default_rng(1)
    patterns, numbers = narrowed(name, rng.standard_normal((40, 512)) * np.exp2(rng.integers(-14, 3, (40, 512))))
    x = rng.standard_normal((29, 512)).astype(np.float32)
    numbers, x = numbers.astype(np.float64), x.astype(np.float64)
    runs, rows = (np.abs(each).reshape(len(each), 16, 32) for each in (numbers, x))
    if way in WHOLE:
        x_error = np.repeat(rows.max(2, keepdims=True) * 2.0**-12, 32, 2).reshape(x.shape) * 1.001
        w_error = np.repeat(runs.max(2, keepdims=True) * 2.0**-15, 32, 2).reshape(numbers.shape)
        w_error[np.abs(numbers) * 16 >= np.repeat(runs.max(2, keepdims=True), 32, 2).reshape(numbers.shape)] = 0
    else:
        x_error, w_error = (
            np.abs(x) * 2.0 ** (-16 if (name, way) == ("f16", "emulated") else -9),
            np.zeros_like(numbers),
        )
    most = np.abs(x) @ w_error.T + x_error @ (np.abs(numbers) + w_error).T + 1e-6 * (np.abs(x) @ np.abs(numbers).T)
    error = np.abs(product(name, way, x, patterns) - x @ numbers.T)
    assert (error <= most).all()
    assert np.linalg.norm(error) <= (5e-4 if way in WHOLE else 3e-3) * np.linalg.norm(x @ numbers.T)


@pytest.mark.parametrize(("name", "way"), HERE)
def test_weights_that_are_zero_tiny_or_not_finite(name, way):
    rng = np.random.default_rng(2)
    numbers = rng.standard_normal((5, 64))
    numbers[0] = 0
    numbers[1] *= 2.0**-13 if name == "f16" else 2.0**-120
    numbers[2, 40], numbers[3, 7] = np.nan, np.inf
    patterns, numbers = narrowed(name, numbers)
    x = rng.standard_normal((7, 64)).astype(np.float32)
    with np.errstate(invalid="ignore"):
        got = product(name, way, x, patterns)
    assert (got[:, 0] == 0).all()
    assert np.linalg.norm(got[:, 1] - x @ numbers[1]) <= 5e-3 * np.linalg.norm(x @ numbers[1])
    assert np.isnan(got[:, 2]).all()
    assert not np.isfinite(got[:, 3]).any()
    assert np.linalg.norm(got[:, 4] - x @ numbers[4]) <= 5e-3 * np.linalg.norm(x @ numbers[4])


def test_pairs_are_added_in_registers_at_avx2(monkeypatch):
    """A loop over the pairs of a run: unrolled, LLVM adds a run row by row and spills its columns."""
    monkeypatch.setattr(isa, "features", lambda: next(each for each in isa.LEVELS if each.name == "avx2").needs)
    written, _ = assembled(packed_gemm.packed_gemm("f16", "16-bit pairs"), "haswell")
    loops = [loop for loop in innermost_loops(written) if any("vpmaddwd" in line for line in loop)]
    assert max(sum("vpmaddwd" in line for line in loop) for loop in loops) == 8
    assert not [line for loop in loops for line in loop if "(%rsp)" in line or "(%rbx)" in line]


def pairs(x, numbers):
    """What VDPBF16PS is documented to compute: the second product of a pair is added first, each sum rounded to nearest
    even."""
    wide, total = np.longdouble, np.zeros((len(x), len(numbers)), np.float32)
    flushed = [np.where(np.abs(each) < 2.0**-126, 0, each).astype(wide) for each in (x, numbers)]
    for first in range(0, x.shape[1], 2):
        for k in (first + 1, first):
            total = (total.astype(wide) + flushed[0][:, k, None] * flushed[1][None, :, k]).astype(np.float32)
            total[np.abs(total) < 2.0**-126] = 0
    return total


@pytest.mark.skipif(("bf16", "BF16") not in HERE, reason="this processor does not multiply bfloat16")
@pytest.mark.parametrize("power", [0, -45, -62])
def test_products_of_bfloat16_are_those_of_the_manual(power):
    """Bit by bit, where sums become smaller than normal numbers too, and operands are."""
    rng = np.random.default_rng(3)
    patterns, numbers = narrowed("bf16", rng.standard_normal((34, 64)) * 2.0**power)
    _, x = narrowed("bf16", rng.standard_normal((14, 64)) * 2.0**power)
    x[3], numbers[5] = x[3] * np.float32(2.0 ** (-127 - power)), 0
    patterns[5] = np.arange(64)
    np.testing.assert_array_equal(
        product("bf16", "BF16", x, patterns).view(np.uint32), pairs(x, numbers).view(np.uint32)
    )


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_layers_of_text_generation_round_what_meets_narrow_weights(name):
    """Many rows are rounded; few are not, and none without leave. The reference rounds none."""
    rng = np.random.default_rng(4)
    patterns, numbers = narrowed(name, rng.standard_normal((50, 256)))
    x = rng.standard_normal((30, 256)).astype(np.float32)
    found = {}
    for activations in ("f32", "q8"):
        for native in (False, True):
            graph = Graph()
            rows = graph.values["x"] = Value("x", F32, ("n", 256))
            graph.values["w"] = Value("w", DTYPES[name], (50, 256))
            graph.inputs, graph.weights["w"] = [rows], StoredTensor(DTYPES[name], (50, 256), Held(patterns.tobytes()))
            build = Builder(graph)
            graph.outputs = [build.add("MatMul", [rows, build.add("Transpose", [graph.values["w"]], {"perm": [1, 0]})])]
            session = Session(graph, native=native, activations=activations)
            found[activations, native] = [session.run(None, {"x": part})[0] for part in (x[:2], x)]
    wanted = x.astype(np.float64) @ numbers.T
    for (activations, native), (few, many) in found.items():
        for rows, got in ((2, few), (30, many)):
            rounded = activations == "q8" and native and rows > 4
            limit = {"f16": 5e-4, "bf16": 3e-3}[name] if rounded else 1e-6
            assert np.linalg.norm(got - wanted[:rows]) <= limit * np.linalg.norm(wanted[:rows])
