"""onnxruntime's own operators against onnxruntime: matrix products, normalization, attention of projected inputs."""

import itertools

import numpy as np
import pytest
from candle_convert.ops.rules.bit_packing import unpacked
from candle_convert.runtime.base.errors import FormatError, UsageError
from candle_convert.runtime.ir.op import Example
from candle_convert.tests.oracles.onnxruntime import compared, ours, single

RNG = np.random.default_rng(11)
MS = "com.microsoft"


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def whole(low, high, *shape, kind=np.int32):
    return RNG.integers(low, high, shape).astype(kind)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [16, 32, 128])
@pytest.mark.parametrize("inner", [32, 100, 256])
def test_matmul_nbits(bits, block, inner):
    columns, blocks = 11, -(-inner // block)
    b = whole(0, 256, columns, blocks, block * bits // 8, kind=np.uint8)
    scales = normal(columns, blocks) * 0.1
    packed = whole(0, 256, columns, -(-blocks * bits // 8), kind=np.uint8)
    attributes = {
        "K": inner,
        "N": columns,
        "bits": bits,
        "block_size": block,
        "domain": MS,
        "rtol": 1e-4,
        "atol": 1e-3 * 2**bits / 16,
    }
    for zeros, bias in itertools.product(
        [None, packed, RNG.uniform(0, 2**bits, (columns, blocks)).astype(np.float32)], [None, normal(columns)]
    ):
        if zeros is not None and zeros.dtype == np.float32 and bits != 4:
            continue
        for rows in (1, 5):
            compared("MatMulNBits", normal(2, rows, inner), b, scales, zeros, None, bias, **attributes)


def test_matmul_nbits_with_an_order_of_groups():
    b, scales = whole(0, 256, 6, 4, 8, kind=np.uint8), normal(6, 4)
    x, order = normal(3, 64), whole(0, 4, 64)
    (found,) = ours(
        *single(
            "MatMulNBits",
            Example((x, b, scales, None, order), {"K": 64, "N": 6, "bits": 4, "block_size": 16}),
            domain=MS,
        )
    )
    codes = np.stack([b & 15, b >> 4], -1).reshape(6, 64).astype(np.float32)
    np.testing.assert_allclose(found, x @ ((codes - 8) * scales[:, order]).T, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("bits", range(1, 9))
def test_packed_integers(bits):
    values = whole(0, 2**bits, 3, 11)
    text = ["".join(format(int(value), f"0{bits}b")[::-1] for value in row) for row in values]
    data = np.array([[int(row[at : at + 8][::-1], 2) for at in range(0, len(row), 8)] for row in text], np.uint8)
    assert (unpacked(data, bits, 11) == values).all()


@pytest.mark.parametrize("broken", [{"K": 33}, {"N": 7}, {"bits": 9}, {"block_size": 16}, {"weight_prepacked": 1}])
def test_weights_that_do_not_fit_are_refused(broken):
    attributes = {"K": 32, "N": 4, "bits": 4, "block_size": 32, **broken}
    with pytest.raises(FormatError):
        ours(
            *single(
                "MatMulNBits",
                Example((normal(2, 32), whole(0, 9, 4, 1, 16, kind=np.uint8), normal(4, 1)), attributes),
                domain=MS,
            )
        )


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_gelus(kind):
    x, bias = (normal(3, 4, 5) * 3).astype(kind), normal(5).astype(kind)
    rough = {"rtol": 2e-3, "atol": 1e-3} if kind is np.float16 else {}
    compared("FastGelu", x, bias, domain=MS, **rough)
    if kind is np.float32:
        compared("BiasGelu", x, bias, domain=MS)
        compared("Gelu", x, domain=MS)
        compared("QuickGelu", x, domain=MS, alpha=1.1)


@pytest.mark.parametrize("skip", [(2, 3, 8), (3, 8), (1, 3, 8)])
@pytest.mark.parametrize("bias", [False, True])
def test_residuals(skip, bias):
    x, other, gamma, shift = normal(2, 3, 8), normal(*skip), normal(8), normal(8) if bias else None
    made, feeds = single(
        "SkipLayerNormalization", Example((x, other, gamma, normal(8), shift), {"epsilon": 0.01}, 4), domain=MS
    )
    total = x + other + (0 if shift is None else shift)
    _, mean, inverse, added = ours(made, feeds)
    np.testing.assert_allclose(mean[..., 0], total.mean(-1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(inverse[..., 0], 1 / np.sqrt(total.var(-1) + 0.01), rtol=1e-5)
    np.testing.assert_allclose(added, total, rtol=1e-6)
    compared("SkipLayerNormalization", x, other, gamma, normal(8), shift, domain=MS, epsilon=0.01)
    compared("SkipSimplifiedLayerNormalization", x, normal(2, 3, 8), gamma, shift, domain=MS, epsilon=0.01)


@pytest.mark.parametrize(("axis", "outputs"), [(-1, 1), (1, 2), (0, 1)])
def test_simplified_layer_normalization(axis, outputs):
    x = normal(2, 3, 4)
    compared("SimplifiedLayerNormalization", x, normal(*x.shape[axis:]), axis=axis, outputs=outputs, opset=17)


def test_residuals_that_do_not_fit_are_refused():
    with pytest.raises(FormatError):
        ours(*single("SkipLayerNormalization", Example((normal(1, 3, 8), normal(2, 3, 8), normal(8)), {}), domain=MS))


def test_embeddings():
    ids, mask = whole(0, 20, 3, 5), whole(0, 2, 3, 5)
    tables = normal(20, 8), normal(9, 8), normal(2, 8), normal(8), normal(8)
    compared("EmbedLayerNormalization", ids, whole(0, 2, 3, 5), *tables, mask, outputs=2, domain=MS)
    compared(
        "EmbedLayerNormalization",
        ids,
        whole(0, 2, 3, 5),
        *tables,
        None,
        whole(0, 9, 3, 5),
        outputs=3,
        domain=MS,
        epsilon=0.1,
    )
    for wrong in (ids + 9, ids - 9):
        example = Example((wrong, None, *tables[:2], None, *tables[3:]), {})
        with pytest.raises(UsageError, match="an index is outside of the axis"):
            ours(*single("EmbedLayerNormalization", example, domain=MS))


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved):
    cos, sin = normal(12, 4), normal(12, 4)
    where = whole(0, 12, 2, 3, kind=np.int64)
    compared("RotaryEmbedding", normal(2, 3, 24), where, cos, sin, domain=MS, interleaved=interleaved)
    compared("RotaryEmbedding", normal(2, 3, 24), np.array([5]), cos, sin, domain=MS, interleaved=interleaved)
    compared(
        "RotaryEmbedding",
        normal(2, 3, 3, 8),
        np.array([[1, 2, 3], [4, 5, 6]]),
        cos,
        sin,
        domain=MS,
        interleaved=interleaved,
    )
    compared(
        "RotaryEmbedding",
        normal(2, 3, 24),
        where,
        cos[:, :2],
        sin[:, :2],
        domain=MS,
        interleaved=interleaved,
        num_heads=3,
        rotary_embedding_dim=4,
    )


ATTENTION = {"domain": MS, "num_heads": 2, "rtol": 1e-4, "atol": 1e-5}
"""Scores of hidden keys are near -10000, where f32 has three digits after the point: rows that see nothing else agree
to these alone."""
MASKS = {
    "none": None,
    "lengths": np.array([3, 5], np.int32),
    "ends and starts": np.array([4, 5, 1, 2], np.int32),
    "keys": np.array([[1, 0, 1, 1, 0], [1, 1, 1, 1, 1]], np.int32),
    "rows": np.array([[[1, 0, 1, 1, 0]] * 5, [[1, 1, 0, 1, 1]] * 5], np.int32),
}


@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize(
    "extra", [{}, {"scale": 0.3}, {"qkv_hidden_sizes": [8, 8, 12]}, {"mask_filter_value": -5.0}], ids=str
)
def test_attention(mask, unidirectional, extra):
    width = sum(extra.get("qkv_hidden_sizes", [8, 8, 8]))
    for bias in (None, normal(2, 2, 5, 5), normal(1, 1, 5, 5)):
        rough = {"atol": 5e-3} if mask == "ends and starts" else {}
        compared(
            "Attention",
            normal(2, 5, 6),
            normal(6, width),
            normal(width),
            MASKS[mask],
            None,
            bias,
            unidirectional=unidirectional,
            **{**ATTENTION, **rough, **extra},
        )


@pytest.mark.parametrize("mask", [None, whole(0, 2, 2, 7), whole(0, 2, 2, 3, 7)], ids=["none", "keys", "rows"])
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention_with_a_past(mask, unidirectional):
    compared(
        "Attention",
        normal(2, 3, 6),
        normal(6, 24),
        normal(24),
        mask,
        normal(2, 2, 2, 4, 4),
        None,
        unidirectional=unidirectional,
        outputs=2,
        **ATTENTION,
    )


def test_attention_in_a_shared_buffer():
    x, weight, bias, past = normal(2, 1, 6), normal(6, 24), normal(24), normal(2, 2, 2, 9, 4)
    attributes = {"num_heads": 2, "unidirectional": 1}
    y, present = ours(
        *single(
            "Attention",
            Example(
                (x, weight, bias, None, past, None, np.array([4], np.int32)),
                {**attributes, "past_present_share_buffer": 1},
                2,
            ),
            domain=MS,
        )
    )
    expected, whole_present = ours(
        *single("Attention", Example((x, weight, bias, None, past[:, :, :, :4]), attributes, 2), domain=MS)
    )
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    assert (present[:, :, :, :5] == whole_present).all()
    assert (present[:, :, :, 5:] == past[:, :, :, 5:]).all()


def test_rotary_attention_turns_by_position():
    x, weight = normal(1, 3, 6), normal(6, 24)

    def run(x, past=None):
        return ours(
            *single(
                "Attention",
                Example((x, weight, None, None, past), {"num_heads": 2, "do_rotary": 1, "unidirectional": 1}, 2),
                domain=MS,
            )
        )

    whole_run, (first, present) = run(x), run(x[:, :2])
    np.testing.assert_allclose(
        np.concatenate([first, run(x[:, 2:], present)[0]], 1), whole_run[0], rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize(
    "mask",
    [None, np.array([3, 6], np.int32), whole(0, 2, 2, 6), whole(0, 2, 2, 5, 6)],
    ids=["none", "lengths", "keys", "rows"],
)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("attributes", [{}, {"scale": 0.4}, {"mask_filter_value": -3.0}], ids=str)
def test_multi_head_attention(mask, bias, attributes):
    for scores in (None, normal(1, 2, 5, 6), normal(2, 1, 5, 6)):
        compared(
            "MultiHeadAttention",
            normal(2, 5, 8),
            normal(2, 6, 8),
            normal(2, 6, 12),
            normal(28) if bias else None,
            mask,
            scores,
            **ATTENTION,
            **attributes,
        )


@pytest.mark.parametrize("unidirectional", [0, 1])
def test_multi_head_attention_with_a_past(unidirectional):
    past = normal(2, 2, 4, 4), normal(2, 2, 4, 4)
    for mask in (None, whole(0, 2, 2, 7), whole(0, 2, 2, 3, 7)):
        compared(
            "MultiHeadAttention",
            normal(2, 3, 8),
            normal(2, 3, 8),
            normal(2, 3, 8),
            normal(24),
            mask,
            None,
            *past,
            outputs=3,
            unidirectional=unidirectional,
            **ATTENTION,
        )
    compared(
        "MultiHeadAttention",
        normal(2, 3, 8),
        normal(2, 3, 8),
        normal(2, 3, 8),
        unidirectional=unidirectional,
        outputs=3,
        **ATTENTION,
    )


def test_packed_heads():
    compared("MultiHeadAttention", normal(2, 5, 8), normal(2, 2, 6, 4), normal(2, 2, 6, 4), normal(24), **ATTENTION)
    packed = normal(2, 5, 2, 3, 4)
    parts = [packed[:, :, :, part].reshape(2, 5, 8) for part in range(3)]
    (found,), (expected,) = (
        ours(*single("MultiHeadAttention", Example(inputs, {"num_heads": 2}), domain=MS))
        for inputs in ((packed,), parts)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    pair = np.stack([part.reshape(2, 5, 2, 4) for part in parts[1:]], 3)
    (again,) = ours(*single("MultiHeadAttention", Example((parts[0], pair), {"num_heads": 2}), domain=MS))
    np.testing.assert_allclose(again, expected, rtol=1e-6)


@pytest.mark.parametrize("kinds", [(np.uint8, np.int8), (np.uint8, np.uint8)], ids=str)
def test_quantized_attention(kinds):
    x, weight = whole(0, 120, 2, 5, 6, kind=kinds[0]), whole(0, 120, 6, 24, kind=kinds[1])
    scales = np.float32(0.03), np.float32(0.01)
    for mask in (None, np.array([3, 5], np.int32), whole(0, 2, 2, 5)):
        compared("QAttention", x, weight, normal(24), *scales, mask, kinds[0](60), kinds[1](59), **ATTENTION)
    if kinds[1] is np.int8:
        compared(
            "QAttention",
            x,
            weight,
            normal(24),
            scales[0],
            RNG.uniform(0.01, 0.02, 24).astype(np.float32),
            None,
            kinds[0](60),
            np.full(24, 0, np.int8),
            **ATTENTION,
        )
    compared(
        "QAttention",
        x,
        weight,
        normal(24),
        *scales,
        None,
        kinds[0](60),
        kinds[1](59),
        normal(2, 2, 2, 3, 4),
        unidirectional=1,
        outputs=2,
        **ATTENTION,
    )
