"""Pooled vectors against torch, and texts without tokens."""

import numpy as np
import pytest
from candle_convert.models.pipelines.pooling import mean_pooled, normalized

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(0)
HIDDEN = RNG.normal(size=(3, 5, 8)).astype(np.float32)
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 1, 1, 0]])


def test_the_mean_of_tokens():
    lengths = [torch.tensor(row[mask == 1]).mean(0).numpy() for row, mask in zip(HIDDEN, MASK, strict=True)]
    np.testing.assert_allclose(mean_pooled(HIDDEN, MASK), np.stack(lengths), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mean_pooled(HIDDEN), HIDDEN.mean(1), rtol=1e-5, atol=1e-6)


def test_a_text_without_tokens_is_zero():
    assert not mean_pooled(HIDDEN[:1], np.zeros((1, 5))).any()


def test_lengths_become_one_and_zeros_stay():
    vectors = np.concatenate([HIDDEN[0], np.zeros((1, 8), np.float32)])
    want = torch.nn.functional.normalize(torch.tensor(vectors), dim=-1).numpy()
    np.testing.assert_allclose(normalized(vectors), want, rtol=1e-6)
    assert normalized(vectors).dtype == np.float32
