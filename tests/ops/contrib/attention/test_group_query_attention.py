"""Attention over caches (GroupQueryAttention and its relatives) against onnxruntime, and against itself run in other
steps."""

import ml_dtypes
import numpy as np
import pytest
from candle_convert.runtime.base.errors import FormatError
from candle_convert.runtime.ir.op import Example
from candle_convert.tests.oracles.onnxruntime import ours, single, theirs

RNG = np.random.default_rng(13)
MS = "com.microsoft"
HEADS, GROUPS, SIZE = 4, 2, 16


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def counts(*values):
    return np.array(values, np.int32)


def agree(name, inputs, attributes, outputs=1, rows=None):
    """Outputs against onnxruntime's; of caches the rows that count for each sequence."""
    made, feeds = single(name, Example(inputs, attributes, outputs), 21, MS)
    found, expected = ours(made, feeds), theirs(made, feeds)
    for index, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        if index in (1, 2) and rows is not None:
            for batch, row in enumerate(rows):
                np.testing.assert_allclose(one[batch, :, :row], other[batch, :, :row], rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    return found


OPTIONS = [
    {},
    {"scale": 0.2},
    {"softcap": 3.0},
    {"local_window_size": 3},
    {"smooth_softmax": 1},
    {"do_rotary": 1},
    {"do_rotary": 1, "rotary_interleaved": 1},
    {"do_rotary": 1, "local_window_size": 2, "softcap": 2.0},
]
COS, SIN = normal(20, SIZE // 2), normal(20, SIZE // 2)


def caches(options):
    return (COS, SIN) if options.get("do_rotary") else (None, None)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("packed", [False, True])
def test_first_run(options, packed):
    heads = {"num_heads": HEADS, "kv_num_heads": GROUPS}
    q, k, v = normal(2, 5, HEADS * SIZE), normal(2, 5, GROUPS * SIZE), normal(2, 5, GROUPS * SIZE)
    given = (np.concatenate([q, k, v], 2), None, None) if packed else (q, k, v)
    agree(
        "GroupQueryAttention",
        (*given, None, None, counts(4, 4), np.array(5, np.int32), *caches(options)),
        {**heads, **options},
        3,
    )


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_next_token(options):
    heads = {"num_heads": HEADS, "kv_num_heads": GROUPS}
    new = normal(2, 1, HEADS * SIZE), normal(2, 1, GROUPS * SIZE), normal(2, 1, GROUPS * SIZE)
    past = normal(2, GROUPS, 9, SIZE), normal(2, GROUPS, 9, SIZE)
    agree(
        "GroupQueryAttention",
        (*new, *past, counts(4, 7), np.array(8, np.int32), *caches(options)),
        {**heads, **options},
        3,
        rows=(5, 8),
    )
    more = normal(1, 3, HEADS * SIZE), normal(1, 3, GROUPS * SIZE), normal(1, 3, GROUPS * SIZE)
    agree(
        "GroupQueryAttention",
        (*more, *(part[:1] for part in past), counts(7), np.array(8, np.int32), *caches(options)),
        {**heads, **options},
        3,
        rows=(8,),
    )


@pytest.mark.parametrize("bias", [(2, HEADS, 5, 5), (1, 1, 5, 5)])
def test_biases_sinks_and_positions(bias):
    heads = {"num_heads": HEADS, "kv_num_heads": GROUPS}
    new = normal(2, 5, HEADS * SIZE), normal(2, 5, GROUPS * SIZE), normal(2, 5, GROUPS * SIZE)
    lengths = counts(4, 4), np.array(5, np.int32)
    agree(
        "GroupQueryAttention",
        (*new, None, None, *lengths, None, None, None, normal(*bias)),
        {**heads, "softcap": 2.0},
        3,
    )
    agree("GroupQueryAttention", (*new, None, None, *lengths, None, None, None, None, normal(HEADS)), heads, 3)
    agree(
        "GroupQueryAttention",
        (*new, None, None, *lengths, COS, SIN, np.tile(np.arange(5), (2, 1))),
        {**heads, "do_rotary": 1},
        3,
    )


@pytest.mark.parametrize("stage", [1, 2])
def test_scores_that_are_asked_for(stage):
    new = normal(2, 3, HEADS * SIZE), normal(2, 3, GROUPS * SIZE), normal(2, 3, GROUPS * SIZE)
    attributes = {"num_heads": HEADS, "kv_num_heads": GROUPS, "qk_output": stage}
    made, feeds = single(
        "GroupQueryAttention", Example((*new, None, None, counts(2, 2), np.array(3, np.int32)), attributes, 4), 21, MS
    )
    found, expected = ours(made, feeds)[3], theirs(made, feeds)[3]
    seen = np.tril(np.ones((3, 3), bool))
    np.testing.assert_allclose(found[..., seen], expected[..., seen], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("capacity", [4, 5, 7])
def test_a_cache_of_the_window_gives_what_the_whole_one_gives(capacity):
    attributes = {"num_heads": HEADS, "kv_num_heads": GROUPS, "local_window_size": 4, "do_rotary": 1}
    q, k, v = normal(1, 12, HEADS * SIZE), normal(1, 12, GROUPS * SIZE), normal(1, 12, GROUPS * SIZE)

    def run(part, past, total, **more):
        inputs = (q[:, part], k[:, part], v[:, part], *past, counts(total - 1), np.array(total, np.int32), COS, SIN)
        return ours(*single("GroupQueryAttention", Example(inputs, {**attributes, **more}, 3), domain=MS))

    (expected, *_) = run(slice(0, 12), (None, None), 12)
    past = np.zeros((2, 1, GROUPS, capacity, SIZE), np.float32)
    at = 0
    for step in (3, 1, 1, 2, 1, 4):
        y, *past = run(slice(at, at + step), tuple(past), at + step, sliding_window_cache=1)
        np.testing.assert_allclose(y, expected[:, at : at + step], rtol=1e-4, atol=1e-5)
        at += step


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
def test_quantized_caches(bits, kind):
    attributes = {
        "num_heads": HEADS,
        "kv_num_heads": GROUPS,
        "k_quant_type": kind,
        "v_quant_type": kind,
        "kv_cache_bit_width": bits,
    }
    shape = (1, GROUPS, 1, SIZE) if kind == "PER_CHANNEL" else (1,)
    scales = RNG.uniform(0.2, 0.4, (2, *shape)).astype(np.float32)
    stored = np.uint8 if bits == 4 else np.int8
    past = RNG.integers(
        0 if bits == 4 else -9, 256 if bits == 4 else 9, (2, 2, GROUPS, 6, SIZE // (2 if bits == 4 else 1))
    ).astype(stored)
    new = normal(2, 1, HEADS * SIZE), normal(2, 1, GROUPS * SIZE), normal(2, 1, GROUPS * SIZE)
    inputs = (*new, *past, counts(3, 5), np.array(6, np.int32), *(None,) * 5, *scales)
    made, feeds = single("GroupQueryAttention", Example(inputs, attributes, 3), 21, MS)
    found, expected = ours(made, feeds), theirs(made, feeds)
    np.testing.assert_allclose(found[0], expected[0], rtol=2e-2, atol=2e-2)
    for one, other in zip(found[1:], expected[1:], strict=True):
        assert (one[0, :, :4] == other[0, :, :4]).all()
        assert (one[1] == other[1]).all()


@pytest.mark.parametrize("broken", [{"kv_num_heads": 3}, {"num_heads": 0}, {"k_quant_type": "PER_ROW"}])
def test_heads_that_do_not_fit_are_refused(broken):
    attributes = {"num_heads": HEADS, "kv_num_heads": GROUPS, **broken}
    inputs = (
        normal(1, 1, 32),
        normal(1, 1, 16),
        normal(1, 1, 16),
        *np.zeros((2, 1, 2, 4, 8), np.int8),
        counts(3),
        np.array(4, np.int32),
        *(None,) * 5,
        normal(1),
        normal(1),
    )
    with pytest.raises(FormatError):
        ours(*single("GroupQueryAttention", Example(inputs, attributes), domain=MS))


def test_cache_of_floats_of_8_bits():
    """Codes of f8 with a scale, against onnxruntime with the numbers that they stand for."""
    heads, scale, kind = {"num_heads": HEADS, "kv_num_heads": GROUPS}, np.float32(0.25), ml_dtypes.float8_e4m3fn
    past = [(normal(1, GROUPS, 9, SIZE) / scale).astype(kind) for _ in range(2)]
    new = [(normal(1, 2, GROUPS * SIZE) / scale).astype(kind).astype(np.float32) * scale for _ in range(2)]
    q, lengths = normal(1, 2, HEADS * SIZE), (counts(6), np.array(7, np.int32))
    coded = {**heads, "k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}
    scales = np.array([scale]), np.array([scale])
    made, feeds = single(
        "GroupQueryAttention", Example((q, *new, *past, *lengths, *(None,) * 5, *scales), coded, 3), 21, MS
    )
    values = [part.astype(np.float32) * scale for part in past]
    numbers, known = single("GroupQueryAttention", Example((q, *new, *values, *lengths), heads, 3), 21, MS)
    found, expected = ours(made, feeds), theirs(numbers, known)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)
    for codes, rows in zip(found[1:], expected[1:], strict=True):
        assert codes.dtype == kind
        np.testing.assert_array_equal(codes[:, :, :7].astype(np.float32) * scale, rows[:, :, :7])
