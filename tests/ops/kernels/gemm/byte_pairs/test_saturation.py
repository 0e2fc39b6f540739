"""Products of bytes by vpmaddubsw: exactly the integers of NumPy, wherever pairs of products would saturate."""

import itertools

import numpy as np
import pytest
from candle_convert.ops.kernels.gemm.byte_pairs import saturation
from candle_convert.ops.quantized import conv_integer_kernel, matmul_integer_kernel
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.jit import isa
from candle_convert.tests.oracles.native_vs_numpy import natively

PATH = "16-bit pairs"
EXTREMES = (-128, -127, -65, -64, -1, 0, 1, 63, 64, 65, 126, 127)


@pytest.fixture
def by_pairs(monkeypatch):
    """Products by AVX2 on every processor that has it."""
    if not dict(isa.INTEGERS.variants)[PATH] <= isa.features():
        pytest.skip("the processor has no AVX2")
    monkeypatch.setattr(
        matmul_integer_kernel.product,
        "__defaults__",
        (matmul_integer_kernel.product_by(PATH), matmul_integer_kernel.product_with_column),
    )


def multiplied(a, b):
    """Check MatMulInteger against NumPy."""
    natively("MatMulInteger", Example((a, b), {}), 21, rtol=0, atol=0, constant=[1])


@pytest.mark.parametrize("left", [np.uint8, np.int8])
def test_pairs_of_extreme_weights(by_pairs, left):
    """Every pair of extreme weights, in both lanes of a quad, with the smallest and the largest activations."""
    info = np.iinfo(left)
    pairs = np.array(list(itertools.product(EXTREMES, repeat=2)), np.int8)
    b = np.concatenate([pairs, pairs[::-1]], 1).T  # [4, 144]
    a = np.array([[info.min] * 4, [info.max] * 4, [info.max, info.min] * 2, [info.min, info.max] * 2], left)
    multiplied(a, b)
    multiplied(np.tile(a, (2, 9)), np.tile(b, (9, 1)))


@pytest.mark.parametrize("rows", range(1, 10))
@pytest.mark.parametrize("spread", [5, 12, 25, 40, 300])
def test_random_weights(by_pairs, rows, spread):
    """Weights of all deviations, so that the three kinds of quads occur in every proportion; a few extreme columns."""
    rng = np.random.default_rng(rows * 1000 + spread)
    depth, columns = int(rng.integers(1, 200)), int(rng.integers(1, 80))
    b = np.clip(np.round(rng.normal(size=(depth, columns)) * spread), -128, 127).astype(np.int8)
    b[:, rng.integers(0, columns)] = rng.choice([-128, 127])
    a = rng.choice([0, 255, 254, 1, 128], (rows, depth)).astype(np.uint8)
    multiplied(a, b)
    multiplied(a, (b.astype(np.int16) + 128).astype(np.uint8))


@pytest.mark.parametrize("spread", [1, 10, 20, 30, 60, 300])
def test_order_of_quads(spread):
    """Every quad occurs once, no lane of a couple or of another quad leaves 16 bits, and quads of the rest would."""
    rng = np.random.default_rng(spread)
    weights = np.clip(np.round(rng.normal(size=(48, 260)) * spread), -128, 127).astype(np.int8)
    panels = saturation.quad_panels(weights)
    order, counts = saturation.order_quads(panels)
    assert (np.sort(order, 1) == np.arange(65)).all()
    assert (2 * counts[:, 0] + counts[:, 1] + counts[:, 2] == 65).all()
    packed = saturation.sort_quads(panels, order).astype(np.int64)
    lanes = packed.reshape(*packed.shape[:3], 2, 2)
    highest, lowest = 255 * np.maximum(lanes, 0).sum(-1), 255 * np.minimum(lanes, 0).sum(-1)
    for (couples, apart, _), high, low in zip(counts, highest, lowest, strict=True):
        coupled = slice(0, 2 * couples)
        assert (high[coupled][::2] + high[coupled][1::2] <= 32767).all()
        assert (low[coupled][::2] + low[coupled][1::2] >= -32768).all()
        single = slice(0, 2 * couples + apart)
        assert (high[single] <= 32767).all()
        assert (low[single] >= -32768).all()
        rest = slice(2 * couples + apart, None)
        assert ((high[rest] > 32767) | (low[rest] < -32768)).any((1, 2)).all()


@pytest.mark.parametrize("spread", [12, 40, 300])
@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((2, 9, 11, 13), (37, 9, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((1, 69, 7, 7), (16, 69, 1, 1), {}),
        ((1, 3, 33, 41), (50, 3, 5, 5), {"strides": [2, 2], "pads": [2, 1, 2, 2]}),
        ((2, 30, 9, 8), (34, 15, 3, 2), {"group": 2, "dilations": [2, 3], "pads": [0, 1, 1, 0]}),
        ((1, 5, 600), (20, 5, 3), {}),
    ],
)
def test_convolutions(monkeypatch, by_pairs, spread, x, w, attributes):
    """Convolutions whose positions are multiplied where they lie, with the largest and the smallest bytes."""
    launch = conv_integer_kernel.launch_convolution
    monkeypatch.setattr(launch, "__defaults__", (conv_integer_kernel.window_kernel(PATH), PATH))
    monkeypatch.setattr(conv_integer_kernel, "is_faster", lambda outputs, quads, lengths: True)
    rng = np.random.default_rng(spread)
    kernels = np.clip(np.round(rng.normal(size=w) * spread), -128, 127).astype(np.int8)
    kernels[0], kernels[-1] = 127, -128
    data = rng.choice([0, 255, 128, 254], x).astype(np.uint8)
    scales = rng.uniform(0.0005, 0.002, w[0]).astype(np.float32)
    zeros, bias = np.zeros(w[0], np.int8), rng.integers(-999, 999, w[0]).astype(np.int32)
    rest = (np.float32(0.2), np.uint8(100), bias)
    inputs = (data, np.float32(0.03), np.uint8(7), kernels, scales, zeros, *rest)
    natively("QLinearConv", Example(tuple(map(np.asarray, inputs)), attributes), 21, rtol=0, atol=0, constant=[3, 4, 5])
