"""Sampling as a graph: the tokens that `Sampler` chooses, for the same seed."""

import numpy as np
import pytest
from candle_convert.models.generation.sampling import Sampler, Sampling
from candle_convert.models.generation.sampling_graph import DeviceSampler
from candle_convert.runtime.base.errors import UnsupportedError

WAYS = [
    {"temperature": 0},
    {"temperature": 0, "repeat_penalty": 1.6},
    {},
    {"top_k": 0},
    {"top_k": 0, "top_p": 1, "min_p": 0},
    {"top_p": 0.5, "min_p": 0},
    {"min_p": 0.3, "top_p": 1},
    {"temperature": 3.0, "top_k": 7, "repeat_penalty": 1.3, "repeat_last": 5},
    {"repeat_penalty": 0.7, "repeat_last": -1},
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_same_tokens(way):
    rng = np.random.default_rng(0)
    sampling = Sampling(seed=5, **way)
    host, there = Sampler(sampling, 3), DeviceSampler(sampling, 3, 90, native=False)
    seen = [[1], [4, -1, -1, 5, 6, 4], list(range(20))]
    for _ in range(12):
        logits = (3 * rng.standard_normal((3, 1, 100))).astype(np.float32)
        logits[..., 90:] = 100
        expected = host.choose(logits[:, -1, :90].copy(), seen)
        np.testing.assert_array_equal(there.choose(logits, seen), expected)
        for row, token in zip(seen, expected, strict=True):
            row.append(int(token))


@pytest.mark.parametrize("way", [{"temperature": 0}, {}], ids=str)
def test_logits_that_are_no_numbers(way):
    for wrong in (np.nan, np.inf):
        logits = np.zeros((1, 1, 8), np.float32)
        logits[0, 0, 3] = wrong
        with pytest.raises(UnsupportedError) as caught:
            DeviceSampler(Sampling(**way), 1, 8, native=False).choose(logits, [[1]])
        assert caught.value.code == "E-LM-NAN"


def test_equal_logits_are_taken_in_order():
    logits = np.zeros((1, 1, 50), np.float32)
    sampling = Sampling(temperature=1.0, top_k=3, min_p=0, top_p=1, seed=1)
    found = {
        int(DeviceSampler(Sampling(**{**vars(sampling), "seed": seed}), 1, 50, native=False).choose(logits, [[0]])[0])
        for seed in range(20)
    }
    assert found == {0, 1, 2}
