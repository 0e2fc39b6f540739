"""Sampling against the processors of transformers, and what is drawn against probabilities."""

import numpy as np
import pytest
from candle_convert.models.generation.sampling import GREEDY, Sampler, Sampling, candidates, draw, largest, penalize
from candle_convert.runtime.base.errors import UnsupportedError, UsageError

RANDOM = np.random.default_rng(3)
CASES = [
    {"top_k": 40, "top_p": 0.95, "min_p": 0.05},
    {"top_k": 5, "top_p": 1.0, "min_p": 0.0},
    {"top_k": 0, "top_p": 0.9, "min_p": 0.0},
    {"top_k": 0, "top_p": 1.0, "min_p": 0.1},
    {"top_k": 0, "top_p": 0.999, "min_p": 0.001},
    {"top_k": 0, "top_p": 1.0, "min_p": 0.0},
    {"top_k": 3000, "top_p": 0.5, "min_p": 0.0},
    {"top_k": 1, "top_p": 0.0, "min_p": 1.0},
    {"top_k": 0, "top_p": 0.0, "min_p": 1.0},
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_what_may_be_drawn_as_in_transformers(case, spread):
    torch = pytest.importorskip("torch")
    processors = pytest.importorskip("transformers").generation.logits_process
    logits = (RANDOM.standard_normal(5000) * spread).astype(np.float32)
    scores = torch.from_numpy(logits[None].astype(np.float64))
    if case["top_k"]:
        scores = processors.TopKLogitsWarper(min(case["top_k"], 5000))(None, scores)
    if case["top_p"] < 1:
        scores = processors.TopPLogitsWarper(case["top_p"])(None, scores)
    if case["min_p"] > 0:
        scores = processors.MinPLogitsWarper(case["min_p"])(None, scores)
    want = np.flatnonzero(np.isfinite(scores[0].numpy()))
    tokens, held = candidates(logits, Sampling(**case))
    assert sorted(tokens) == list(want)
    assert (np.diff(held) <= 0).all()
    np.testing.assert_array_equal(held, logits[tokens])


def test_repeat_penalty_as_in_transformers():
    torch = pytest.importorskip("torch")
    processors = pytest.importorskip("transformers").generation.logits_process
    logits, tokens = (
        RANDOM.standard_normal(100).astype(np.float32),
        [int(token) for token in RANDOM.integers(0, 100, 80)],
    )
    want = processors.RepetitionPenaltyLogitsProcessor(1.3)(
        torch.tensor([tokens[-64:]]), torch.from_numpy(logits[None].copy())
    )[0].numpy()
    with_features = [*tokens[:-30], -1, -1, *tokens[-30:]]
    for seen, count in ((tokens, 64), (with_features, 66)):
        found = logits.copy()
        penalize(found, seen, Sampling(repeat_penalty=1.3, repeat_last=count))
        np.testing.assert_allclose(found, want, rtol=1e-6)


@pytest.mark.parametrize("length", [1, 63, 64, 1000, 70001])
def test_largest(length):
    values = RANDOM.integers(0, 2000, length).astype(np.float32)
    for count in {1, min(7, length), length}:
        np.testing.assert_array_equal(largest(values, count), np.argsort(-values, kind="stable")[:count])


def test_tokens_come_as_often_as_they_are_likely():
    logits = np.log(np.array([0.5, 0.25, 0.15, 0.1], np.float32)) * 0.7
    sampler = Sampler(Sampling(temperature=0.7, top_p=1, min_p=0, seed=1), 1)
    counts = np.bincount([sampler.choose(logits[None].copy(), [[]])[0] for _ in range(4000)], minlength=4) / 4000
    np.testing.assert_allclose(counts, [0.5, 0.25, 0.15, 0.1], atol=0.03)


def test_sequences_have_seeds_of_their_own():
    logits = RANDOM.standard_normal((3, 50)).astype(np.float32)

    def texts(batch, seed=5):
        sampler = Sampler(Sampling(seed=seed), batch)
        return np.stack([sampler.choose(logits[:batch].copy(), [[]] * batch) for _ in range(20)], 1)

    np.testing.assert_array_equal(texts(3), texts(3))
    np.testing.assert_array_equal(texts(3)[:1], texts(1))
    assert (texts(3) != texts(3, seed=6)).any()
    np.testing.assert_array_equal(Sampler(GREEDY, 3).choose(logits.copy(), [[]] * 3), logits.argmax(1))


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(seed=0)])
def test_logits_that_are_no_numbers(sampling):
    with pytest.raises(UnsupportedError, match="largest logit is not finite"):
        Sampler(sampling, 1).choose(np.array([[1, np.nan, 3]], np.float32), [[]])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("temperature", [1e-320, 1e308])
def test_extreme_temperatures(temperature):
    """The lowest is greedy, the highest gives all candidates one weight; neither warns."""
    sampling = Sampling(temperature=temperature, top_k=0, top_p=1, min_p=0)
    logits = np.array([1, 5, 3], np.float32)
    drawn = {draw(logits.copy(), sampling, number) for number in (0.1, 0.5, 0.9)}
    assert drawn == ({1} if temperature < 1 else {0, 1, 2})


WRONG = [
    {"temperature": -1},
    {"top_p": 1.5},
    {"min_p": -0.1},
    {"top_k": -3},
    {"repeat_penalty": 0},
    {"repeat_penalty": 1e308},
    {"temperature": np.nan},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_options_out_of_range(wrong):
    with pytest.raises(UsageError, match="out of range"):
        Sampling(**wrong)
