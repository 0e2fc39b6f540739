"""Q8_0 keys and values: blocks are gguf's, native attention is NumPy's over what they stand for."""

import numpy as np
import pytest
from candle_convert.ops.attention.variants.block_attention import block_attention, dequantized, quantized
from candle_convert.runtime.ir.domain import CANDLE
from candle_convert.runtime.ir.op import Example
from candle_convert.tests.oracles.native_vs_numpy import natively


@pytest.mark.parametrize("scale", [1e-4, 1, 300])
def test_blocks_are_those_of_ggml(scale):
    quants = pytest.importorskip("gguf").quants
    x = np.random.default_rng(0).normal(size=(40, 96)).astype(np.float32) * np.float32(scale)
    x[3, :32] = 0
    wanted = quants.quantize(x, quants.GGMLQuantizationType.Q8_0)
    assert np.array_equal(quantized(x), wanted)
    (made,) = natively("QuantizeBlocks", Example((x,), {}), domain=CANDLE)
    assert np.array_equal(made, wanted)
    assert np.array_equal(dequantized(made), quants.dequantize(wanted, quants.GGMLQuantizationType.Q8_0))


def test_numbers_that_are_not_finite_become_nan():
    x = np.ones((3, 32), np.float32)
    x[0, 5], x[1, 6] = np.nan, np.inf
    (made,) = natively("QuantizeBlocks", Example((x,), {}), domain=CANDLE)
    assert np.isnan(dequantized(made)).all(1).tolist() == [True, True, False]
    assert np.array_equal(made, quantized(x))


@pytest.mark.parametrize("queries", [1, 3, 70])
def test_native_attention(queries):
    rng = np.random.default_rng(queries)
    q = rng.normal(size=(2, 6, queries, 64)).astype(np.float32)
    k, v = (quantized(rng.normal(size=(2, 3, 301, size)).astype(np.float32)) for size in (64, 96))
    mask = rng.random((2, 1, queries, 301)) < 0.7
    (made,) = natively("BlockAttention", Example((q, k, v, mask), {"scale": 0.2}), domain=CANDLE)
    np.testing.assert_allclose(made, block_attention.compute(q, k, v, mask, scale=0.2), rtol=1e-4, atol=1e-5)
