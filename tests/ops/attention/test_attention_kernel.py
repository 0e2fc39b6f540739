"""Native attention against the NumPy functions, drawn; masks, windows, caches, storage dtypes; threads change
nothing."""

import numpy as np
import pytest
from candle_convert.ops.attention.variants.attention_with_sinks import attention_with_sinks
from candle_convert.runtime.ir.op import Example
from candle_convert.tests.oracles.native_vs_numpy import natively


def floats(rng, *shape, dtype=np.float32):
    return rng.normal(size=shape).astype(dtype)


def masks(rng, batch, heads, queries, keys):
    """None, booleans and numbers that broadcast."""
    shapes = [
        (queries, keys),
        (batch, heads, queries, keys),
        (1, 1, queries, keys),
        (heads, 1, keys),
        (batch, 1, queries, max(1, keys - 2)),
    ]
    shape = shapes[rng.integers(len(shapes))]
    numbers = floats(rng, *shape)
    numbers[..., :: int(rng.integers(2, 9))] = -np.inf
    return [None, rng.random(shape) < 0.7, numbers][rng.integers(3)]


def drawn(rng, most):
    """Inputs, attributes and number of outputs of an Attention node with lengths up to `most`."""
    batch, groups, each = (int(value) for value in rng.integers(1, 4, 3))
    queries, keys, past = (int(value) for value in rng.integers(1, most, 3))
    size, width = (int(rng.integers(1, 70)) for _ in range(2))
    queries = int(rng.integers(1, 5)) if rng.random() < 0.4 else queries
    heads, carried, flat = groups * each, rng.random() < 0.4, rng.random() < 0.4
    counted = not carried and rng.random() < 0.4
    total = keys + past * carried
    inputs = [
        floats(rng, batch, heads, queries, size),
        floats(rng, batch, groups, keys, size),
        floats(rng, batch, groups, keys, width),
    ]
    if flat:
        inputs = [item.transpose(0, 2, 1, 3).reshape(batch, item.shape[2], -1) for item in inputs]
    inputs.append(masks(rng, batch, heads, queries, total))
    inputs += (
        [floats(rng, batch, groups, past, size), floats(rng, batch, groups, past, width)] if carried else [None, None]
    )
    inputs += [rng.integers(1, keys + 1, batch)] if counted else []
    while inputs[-1] is None:
        inputs.pop()
    attributes = {
        "is_causal": int(rng.integers(0, 2)),
        "left_window_size": int(rng.integers(-1, 40)),
        "right_window_size": int(rng.integers(-1, 9)),
    }
    attributes |= {"q_num_heads": heads, "kv_num_heads": groups} if flat else {}
    attributes |= {"softcap": float(rng.uniform(0.5, 2))} if rng.random() < 0.3 else {}
    attributes |= {"scale": float(rng.uniform(0.1, 0.5))} if rng.random() < 0.3 else {}
    return Example(tuple(inputs), attributes, 3 if carried or rng.random() < 0.5 else 1)


@pytest.mark.parametrize("most", [6, 90, 600])
def test_drawn_attention(most):
    rng = np.random.default_rng(most)
    for _ in range(12):
        natively("Attention", drawn(rng, most), 25, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("each", [1, 2, 4, 7])
@pytest.mark.parametrize("size", [64, 80, 144, 256])
def test_a_query_over_a_cache(each, size):
    """Heads that share keys are taken four, two and one at a time, elements of a head in vectors of several widths."""
    rng = np.random.default_rng(size + each)
    for queries, keys in ((1, 259), (2, 515)):
        inputs = floats(rng, 1, 2 * each, queries, size), floats(rng, 1, 2, keys, size), floats(rng, 1, 2, keys, size)
        natively(
            "Attention",
            Example((*inputs, None, None, None, np.array([keys - 3])), {"is_causal": 1}),
            25,
            rtol=2e-4,
            atol=2e-5,
        )


@pytest.mark.parametrize("queries", [1, 4, 50])
@pytest.mark.parametrize("window", [40, 300])
def test_windows_that_begin_and_end_anywhere_in_blocks_of_keys(queries, window):
    """Booleans and a number of keys to the left say the same; a window may begin near the end of one block and go
    on in the next."""
    rng = np.random.default_rng(window)
    inputs = floats(rng, 1, 4, queries, 32), 3 * floats(rng, 1, 2, 700, 32), floats(rng, 1, 2, 700, 32)
    for end in (queries, 263, 300, 513, 524, 539, 700):
        place = end - queries + np.arange(queries)[:, None] - np.arange(700)
        seen = np.array([end])
        (hidden,) = natively(
            "Attention", Example((*inputs, (place >= 0) & (place < window)), {}), 25, rtol=2e-4, atol=2e-5
        )
        attributes = {"is_causal": 1, "left_window_size": window - 1}
        (counted,) = natively(
            "Attention", Example((*inputs, None, None, None, seen), attributes), 25, rtol=2e-4, atol=2e-5
        )
        np.testing.assert_allclose(hidden, counted, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("queries", [1, 3, 60])
@pytest.mark.parametrize("size", [16, 40])
def test_f16_is_widened_and_rounded_once(queries, size):
    rng = np.random.default_rng(1)
    halves = [
        floats(rng, 2, heads, length, size, dtype=np.float16) for heads, length in ((4, queries), (2, 300), (2, 300))
    ]
    natively(
        "Attention",
        Example((*halves, None, None, None, np.array([300, 77])), {"is_causal": 1}),
        25,
        rtol=2e-3,
        atol=1e-3,
    )


@pytest.mark.parametrize("queries", [1, 9])
def test_nan_in_a_query_is_its_own(queries):
    rng = np.random.default_rng(2)
    q, k, v = floats(rng, 1, 2, queries, 8), floats(rng, 1, 2, 20, 8), floats(rng, 1, 2, 20, 8)
    q[0, 1, 0] = np.nan
    (found,) = natively("Attention", Example((q, k, v), {}), 25, rtol=1e-4, atol=1e-5)
    assert np.isnan(found[0, 1, 0]).all()
    assert np.isnan(found).sum() == 8


def test_sinks():
    """Against the softmax with one more score, on either side of the number of queries up to which a cache is read as
    it lies."""
    rng = np.random.default_rng(5)
    for queries, keys, size in ((1, 300, 64), (3, 70, 80), (9, 40, 16), (130, 260, 64)):
        q, k, v = floats(rng, 2, 6, queries, size), floats(rng, 2, 3, keys, size), floats(rng, 2, 3, keys, 24)
        mask, sinks = rng.random((2, 1, queries, keys)) < 0.7, floats(rng, 6)
        natively("AttentionWithSinks", Example((q, k, v, mask, sinks), {}), domain="candle", rtol=2e-4, atol=2e-5)
        scores = np.einsum("bhqs,bhks->bhqk", q.astype(float), np.repeat(k, 2, 1)) / size**0.5
        weights = np.exp(np.where(mask, scores, -np.inf))
        weights /= weights.sum(3, keepdims=True) + np.exp(sinks.astype(float))[:, None, None]
        want = np.einsum("bhqk,bhks->bhqs", weights, np.repeat(v, 2, 1))
        np.testing.assert_allclose(attention_with_sinks.compute(q, k, v, mask, sinks), want, rtol=2e-4, atol=2e-5)
