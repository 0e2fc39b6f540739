"""Products of one row of 8-bit activations with the integers of blocks, by each instruction set, against NumPy."""

import numpy as np
import pytest
from candle_convert.ops.kernels.gemm.dispatch import GEMV, gemv_products
from candle_convert.ops.kernels.gemm.gemv import FloatProducts, gemv
from candle_convert.ops.kernels.gemm.gemv_byte_pairs import PairProducts, SignedPairProducts
from candle_convert.ops.kernels.gemm.gemv_int8 import AvxVnniInt8Products, Int8Products, max_pairs
from candle_convert.ops.linalg import linear_kernel
from candle_convert.ops.quants.llvm import codes
from candle_convert.runtime.jit import isa
from candle_convert.tests.builders.whole_blocks import assembled, innermost_loops, linear, whole_rows, whole_weight

NEEDED = {
    PairProducts: {"avx2", "fma"},
    SignedPairProducts: {"avx2", "fma"},
    AvxVnniInt8Products: {"avx512vnni", "avx512vl"},
    Int8Products: {"avx512vnni", "avx512bw"},
}
CASES = [
    (kind, name)
    for kind in NEEDED
    for name in codes()
    if not issubclass(kind, PairProducts) or (kind.max_pairs(name) and (kind is PairProducts or not max_pairs(name)))
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("products", "name"), CASES)
def test_whole_numbers_are_multiplied_exactly(monkeypatch, products, name):
    """The largest codes with the largest activations, too: sums of pairs must not leave 16 bits."""
    if not NEEDED[products] <= isa.features():
        pytest.skip("the processor has no such instructions")
    monkeypatch.setattr(linear_kernel, "gemv_products", lambda name, rounded: products)
    tensor, numbers = whole_weight(name, 75, 512)
    session = linear(tensor)
    x = whole_rows(1, 512)
    np.testing.assert_array_equal(session.run(None, {"x": x.astype(np.float32)})[0], (x @ numbers.T).astype(np.float32))
    for x in (np.full((1, 512), 127), np.full((1, 512), -127)):
        got = session.run(None, {"x": x.astype(np.float32)})[0]
        np.testing.assert_allclose(got, x @ numbers.T, rtol=0, atol=3e-7 * (abs(x) @ abs(numbers).T).max())


@pytest.mark.parametrize("name", ["q4_k", "q6_k"])
def test_pairs_of_bytes_are_multiplied_at_avx2(name, monkeypatch):
    monkeypatch.setattr(isa, "features", lambda: next(each for each in isa.LEVELS if each.name == "avx2").needs)
    assert gemv_products(name, True) is PairProducts
    assert gemv_products(name, False) is FloatProducts
    assert gemv_products("q8_0", True) is SignedPairProducts
    assert GEMV["FMA"][True] is PairProducts
    written, _ = assembled(gemv(name, 1, products=PairProducts), "haswell")
    assert "vpmaddubsw" in written
    assert "zmm" not in written


@pytest.mark.parametrize("name", ["q8_0", "iq4_nl"])
def test_signed_bytes_stay_in_registers_at_avx2(name, monkeypatch):
    if name == "iq4_nl" and isa.level().name != "avx2":
        pytest.skip("its table is looked up by the instructions of the process' level")
    monkeypatch.setattr(isa, "features", lambda: next(each for each in isa.LEVELS if each.name == "avx2").needs)
    written, _ = assembled(gemv(name, 1, products=SignedPairProducts), "haswell")
    (loop,) = (loop for loop in innermost_loops(written) if any("vpmaddubsw" in line for line in loop))
    assert any("vpsignb" in line for line in loop)
    assert not [line for line in loop if "(%rsp)" in line or "(%rbp)" in line]
