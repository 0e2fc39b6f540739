"""Experts, 4-bit floats, linear attention and other late operators of onnxruntime against onnxruntime."""

import numpy as np
import pytest
from oracles import compared

RNG = np.random.default_rng(19)
MS = "com.microsoft"


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("kind", [0, 1])
def test_floats_of_4_bits(kind):
    for columns, inner, block in ((6, 64, 32), (5, 48, 16)):
        count = columns * inner
        b = RNG.integers(0, 256, count // 2).astype(np.uint8)
        compared("MatMulBnb4", normal(2, 3, inner), b, normal(-(-count // block)), K=inner, N=columns, block_size=block, quant_type=kind, domain=MS,
                 rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.uint16, np.int16])
def test_linear_quantization(kind):
    x = normal(3, 4, 5)
    (codes,) = compared("QuantizeLinear", x, np.float32(0.01), kind(90), domain=MS)
    compared("DequantizeLinear", codes, np.float32(0.01), kind(90), domain=MS)
    scales = RNG.uniform(0.01, 0.1, 4).astype(np.float32)
    (codes,) = compared("QuantizeLinear", x, scales, RNG.integers(0, 90, 4).astype(kind), domain=MS, axis=1)
    compared("DequantizeLinear", codes, scales, np.zeros(4, kind), domain=MS, axis=1)


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "identity"])
@pytest.mark.parametrize("normalize", [0, 1])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_experts(activation, normalize, k):
    compared("MoE", normal(2, 3, 8), normal(6, 4), normal(4, 10, 8), normal(4, 10), normal(4, 8, 10), normal(4, 8), domain=MS, k=k, rtol=1e-3,
             atol=1e-3, activation_type=activation, normalize_routing_weights=normalize)


@pytest.mark.parametrize("limit", [None, 0.7])
def test_gated_experts(limit):
    extra = {} if limit is None else {"swiglu_limit": limit}
    compared("MoE", normal(6, 8), normal(6, 4), normal(4, 20, 8), normal(4, 20), normal(4, 8, 10), normal(4, 8), domain=MS, k=2, rtol=1e-3, atol=1e-3,
             activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.702, activation_beta=1.0, normalize_routing_weights=1, **extra)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("block", [0, 32])
def test_quantized_experts(bits, zeros, block):
    each, experts, size, inner = 8 // bits, 4, 64, 32

    def layer(out, columns):
        blocks = columns // block if block else 1
        scales = RNG.uniform(0.001, 0.004, (experts, out, blocks) if block else (experts, out)).astype(np.float32)
        data = RNG.integers(0, 256, (experts, out, columns // each)).astype(np.uint8)
        packed = RNG.integers(0, 256, (experts, out, -(-blocks // each)) if block else (experts, -(-out // each))).astype(np.uint8)
        return data, scales, packed if zeros else None

    (one, one_scales, one_zeros), (two, two_scales, two_zeros) = layer(inner, size), layer(size, inner)
    extra = {"block_size": block} if block else {}
    compared("QMoE", normal(6, size), normal(6, experts), one, one_scales, normal(experts, inner), two, two_scales, normal(experts, size), None, None,
             None, one_zeros, two_zeros, domain=MS, k=2, expert_weight_bits=bits, activation_type="silu", normalize_routing_weights=1, rtol=2e-2,
             atol=2e-2, **extra)
