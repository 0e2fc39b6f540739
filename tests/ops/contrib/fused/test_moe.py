"""Experts, 4-bit floats, linear attention and other late operators of onnxruntime against onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from candle_convert.runtime.ir.op import Example
from candle_convert.tests.oracles.onnxruntime import compared, ours, single

RNG = np.random.default_rng(19)
MS = "com.microsoft"


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("kind", [0, 1])
def test_floats_of_4_bits(kind):
    for columns, inner, block in ((6, 64, 32), (5, 48, 16)):
        count = columns * inner
        b = RNG.integers(0, 256, count // 2).astype(np.uint8)
        compared(
            "MatMulBnb4",
            normal(2, 3, inner),
            b,
            normal(-(-count // block)),
            K=inner,
            N=columns,
            block_size=block,
            quant_type=kind,
            domain=MS,
            rtol=1e-4,
            atol=1e-4,
        )


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
    compared(
        "MoE",
        normal(2, 3, 8),
        normal(6, 4),
        normal(4, 10, 8),
        normal(4, 10),
        normal(4, 8, 10),
        normal(4, 8),
        domain=MS,
        k=k,
        rtol=1e-3,
        atol=1e-3,
        activation_type=activation,
        normalize_routing_weights=normalize,
    )


@pytest.mark.parametrize("limit", [None, 0.7])
def test_gated_experts(limit):
    extra = {} if limit is None else {"swiglu_limit": limit}
    compared(
        "MoE",
        normal(6, 8),
        normal(6, 4),
        normal(4, 20, 8),
        normal(4, 20),
        normal(4, 8, 10),
        normal(4, 8),
        domain=MS,
        k=2,
        rtol=1e-3,
        atol=1e-3,
        activation_type="swiglu",
        swiglu_fusion=1,
        activation_alpha=1.702,
        activation_beta=1.0,
        normalize_routing_weights=1,
        **extra,
    )


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("block", [0, 32])
def test_quantized_experts(bits, zeros, block):
    each, experts, size, inner = 8 // bits, 4, 64, 32

    def layer(out, columns):
        blocks = columns // block if block else 1
        scales = RNG.uniform(0.001, 0.004, (experts, out, blocks) if block else (experts, out)).astype(np.float32)
        data = RNG.integers(0, 256, (experts, out, columns // each)).astype(np.uint8)
        packed = RNG.integers(
            0, 256, (experts, out, -(-blocks // each)) if block else (experts, -(-out // each))
        ).astype(np.uint8)
        return data, scales, packed if zeros else None

    (one, one_scales, one_zeros), (two, two_scales, two_zeros) = layer(inner, size), layer(size, inner)
    extra = {"block_size": block} if block else {}
    compared(
        "QMoE",
        normal(6, size),
        normal(6, experts),
        one,
        one_scales,
        normal(experts, inner),
        two,
        two_scales,
        normal(experts, size),
        None,
        None,
        None,
        one_zeros,
        two_zeros,
        domain=MS,
        k=2,
        expert_weight_bits=bits,
        activation_type="silu",
        normalize_routing_weights=1,
        rtol=2e-2,
        atol=2e-2,
        **extra,
    )


RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (4, 2), (2, 4)])
def test_linear_attention(rule, heads, groups):
    gated, corrected = RULES[rule]
    decay, beta = (
        -np.abs(normal(2, 5, groups)) * 0.3 if gated else None,
        np.abs(normal(2, 5, groups)) * 0.2 if corrected else None,
    )
    q, k, v = normal(2, 5, heads * 4), normal(2, 5, groups * 4) * 0.4, normal(2, 5, groups * 6)
    past = normal(2, groups, 4, 6)
    attributes = {"q_num_heads": heads, "kv_num_heads": groups, "update_rule": rule}
    y, _ = compared(
        "LinearAttention", q, k, v, past, decay, beta, domain=MS, outputs=2, rtol=1e-4, atol=1e-5, **attributes
    )

    def run(stop, past, **more):
        cut = [None if item is None else item[:, :stop] for item in (q, k, v, decay, beta)]
        return ours(
            *single("LinearAttention", Example((*cut[:3], past, *cut[3:]), {**attributes, **more}, 2), domain=MS)
        )

    for window in (1, 3, 7):
        again, states = run(5, np.stack([past] * window), state_window=window)
        np.testing.assert_allclose(again, y, rtol=1e-5, atol=1e-6)
        for slot, state in enumerate(states):
            stop = 5 - window + 1 + slot
            np.testing.assert_allclose(
                state, run(stop, past)[1] if stop > 0 else np.zeros_like(past), rtol=1e-5, atol=1e-6
            )


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("last", [0, 1])
def test_causal_convolution(dilation, last):
    carried = 3 * dilation
    x, state = (normal(2, 6, 5), normal(2, carried, 5)) if last else (normal(2, 5, 6), normal(2, 5, carried))
    weight, bias, attributes = (
        normal(5, 1, 4),
        normal(5),
        {"dilation": dilation, "channels_last": last, "activation": "silu"},
    )
    y, _ = compared(
        "CausalConvWithState", x, weight, bias, state, domain=MS, outputs=2, rtol=1e-4, atol=1e-5, **attributes
    )

    def run(stop, past, **more):
        cut = x[:, :stop] if last else x[..., :stop]
        return ours(
            *single("CausalConvWithState", Example((cut, weight, bias, past), {**attributes, **more}, 2), domain=MS)
        )

    for window in (1, 3, 8):
        again, states = run(6, np.stack([state] * window), state_window=window)
        np.testing.assert_array_equal(again, y)
        for slot, found in enumerate(states):
            stop = 6 - window + 1 + slot
            np.testing.assert_array_equal(found, run(stop, state)[1] if stop > 0 else np.zeros_like(state))


def shared(made, feeds, past_key, past_value):
    """Outputs of onnxruntime where past and present are the same memory."""
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    copies = {name: np.array(value) for name, value in feeds.items()}
    held = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in copies.items()}
    for name, value in held.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y0")
    binding.bind_ortvalue_output("y1", held[past_key])
    binding.bind_ortvalue_output("y2", held[past_value])
    session.run_with_iobinding(binding)
    return [np.array(value.numpy()) for value in binding.get_outputs()]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize("new", [20, 1])
def test_sparse_attention(packed, rotary, new):
    heads, groups, size, block = 4, 2, 16, 16
    q, k, v = normal(1, new, heads * size), normal(1, new, groups * size), normal(1, new, groups * size)
    past = normal(2, 1, groups, 48, size)
    rows = np.array([[0, 1, 3, 5], [0, 1, 2, 4]], np.int32)
    columns = np.array([[0, 0, 1, 1, 2], [0, 1, 0, 2, -1]], np.int32)
    caches = (normal(48, size // 2), normal(48, size // 2)) if rotary else (None, None)
    given = (np.concatenate([q, k, v], 2), None, None) if packed else (q, k, v)
    total = np.array([new if new > 1 else 35], np.int32)
    made, feeds = single(
        "SparseAttention",
        Example(
            (*given, *past, rows, columns, total, total, *caches),
            {"num_heads": heads, "kv_num_heads": groups, "sparse_block_size": block, "do_rotary": rotary},
            3,
        ),
        21,
        MS,
    )
    found, expected = ours(made, feeds), shared(made, feeds, "x3", "x4")
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)
    for one, other in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(one[:, :, : total[0]], other[:, :, : total[0]], rtol=1e-5, atol=1e-6)


def half(*shape):
    return normal(*shape).astype(np.float16)


@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}, {"local_window_size": 3}, {"do_rotary": 1}], ids=str)
def test_pages_hold_what_a_whole_cache_holds(options):
    heads, groups, size = 4, 2, 16
    new, pasts, pages = [3, 1], [2, 5], np.array([[3, 0], [1, 2]], np.int32)
    q, k, v = half(4, heads * size), half(4, groups * size), half(4, groups * size)
    keys, values = half(4, 4, groups, size), half(4, 4, groups, size)
    tables = (half(9, size // 2), half(9, size // 2)) if options.get("do_rotary") else (None, None)
    inputs = (q, k, v, keys, values, np.array([0, 3, 4], np.int32), np.array(pasts, np.int32), pages, *tables)
    attributes = {"num_heads": heads, "kv_num_heads": groups, **options}
    y, after_keys, after_values = ours(*single("PagedAttention", Example(inputs, attributes, 3), domain=MS))
    start = 0
    for index, (count, past) in enumerate(zip(new, pasts, strict=True)):
        rows = slice(start, start + count)
        held = [
            cache[pages[index]].reshape(1, -1, groups, size).transpose(0, 2, 1, 3)[:, :, :past]
            for cache in (keys, values)
        ]
        total = past + count
        single_inputs = (
            q[None, rows],
            k[None, rows],
            v[None, rows],
            *held,
            np.array([total - 1], np.int32),
            np.array(total, np.int32),
            *tables,
        )
        found, present_key, present_value = ours(
            *single("GroupQueryAttention", Example(single_inputs, attributes, 3), domain=MS)
        )
        np.testing.assert_allclose(y[rows], found[0], rtol=2e-3, atol=2e-3)
        for cache, present in ((after_keys, present_key), (after_values, present_value)):
            stored = cache[pages[index]].reshape(-1, groups, size)[:total].transpose(1, 0, 2)
            np.testing.assert_allclose(stored, present[0], rtol=2e-3)
        start += count


def test_channels_last_convolution():
    x, weight, bias = normal(2, 5, 6, 4), normal(6, 3, 2, 2), normal(6)
    attributes = {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1]}
    (y,) = ours(*single("NhwcConv", Example((x, weight, bias), attributes), domain=MS))
    (expected,) = compared("Conv", np.moveaxis(x, -1, 1), np.moveaxis(weight, -1, 1), bias, opset=17, **attributes)
    np.testing.assert_allclose(np.moveaxis(y, -1, 1), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", [0, 1])
def test_positions_in_time_height_and_width(layout):
    x, cos, sin = normal(2, 3, 24), normal(10, 6), normal(10, 6)
    where, sections = RNG.integers(0, 10, (3, 2, 3)), [2, 2, 2]
    (y,) = ours(
        *single(
            "MRotaryEmbedding",
            Example((x, where, cos, sin), {"mrope_section": sections, "mrope_layout": layout}),
            domain=MS,
        )
    )
    expected = np.array(x)
    for batch, token, head, column in np.ndindex(2, 3, 2, 6):
        stream = column % 3 if layout else column // 2
        c, s = (table[where[stream, batch, token], column] for table in (cos, sin))
        one, two = x[batch, token, 12 * head + column], x[batch, token, 12 * head + column + 6]
        expected[batch, token, 12 * head + column], expected[batch, token, 12 * head + column + 6] = (
            c * one - s * two,
            s * one + c * two,
        )
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


def test_gates():
    a, bias, factor, b = normal(2, 3, 4), normal(4), normal(4), normal(2, 3, 4)
    decay, beta = ours(*single("LinearAttentionGate", Example((a, bias, factor, b), {}, 2), domain=MS))
    np.testing.assert_allclose(decay, factor * np.log1p(np.exp(a + bias)), rtol=1e-5)
    np.testing.assert_allclose(beta, 1 / (1 + np.exp(-b)), rtol=1e-5)
    x, scale, gate = normal(2, 3, 8), normal(4), normal(2, 3, 8)
    (y,) = ours(*single("GatedRMSNorm", Example((x, scale, gate), {"epsilon": 0.1}), domain=MS))
    parts = x.reshape(2, 3, 2, 4)
    normed = parts / np.sqrt((parts**2).mean(-1, keepdims=True) + 0.1) * scale
    np.testing.assert_allclose(y, normed.reshape(x.shape) * gate / (1 + np.exp(-gate)), rtol=1e-5, atol=1e-6)
