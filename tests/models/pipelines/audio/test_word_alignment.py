"""Times of words: filters and dynamic time warping against transformers, and words of known attention."""

import numpy as np
import pytest
from candle_convert import models
from candle_convert.models.pipelines.audio.transcription.word_alignment import (
    TimedWord,
    aligned_words,
    normalized,
    shortest_path,
    split_words,
    with_punctuation,
    within_segment,
)
from candle_convert.tests.builders.speech_checkpoints import SECONDS, WHISPERS, tones, whisper
from candle_convert.tests.oracles.transformers import transformers


def oracle():
    transformers()
    from transformers.models.whisper import generation_whisper

    return generation_whisper


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (6, 1), (5, 40), (23, 17)])
def test_path_as_transformers(shape):
    costs = np.random.default_rng(0).standard_normal(shape)
    rows, columns = shortest_path(costs)
    want = oracle()._dynamic_time_warping(costs)
    np.testing.assert_array_equal(rows, want[0])
    np.testing.assert_array_equal(columns, want[1])


def test_filter_as_transformers():
    import torch

    scores = np.random.default_rng(1).standard_normal((3, 8, 60)).astype(np.float32)
    weights = torch.softmax(torch.tensor(scores), -1)
    std, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
    want = oracle()._median_filter(((weights - mean) / std)[None], 7)[0].mean(0)
    np.testing.assert_allclose(normalized(scores), want.numpy(), atol=1e-5)


def test_words_of_known_attention():
    """Three words of one or two tokens, each of which attends to frames of its own."""
    attention = np.full((5, 50), -1.0)
    for token, (first, last) in enumerate([(0, 10), (10, 14), (14, 30), (30, 45), (45, 50)]):
        attention[token, first:last] = 1
    words = [(" a", [1]), (" bc", [2, 3]), (" d", [4]), ("", [9])]
    found = aligned_words(words, attention, np.array([0.5, 0.2, 0.4, 1.0]), 0.02)
    assert [(word.text, round(word.start, 2), round(word.end, 2)) for word in found] == [
        (" a", 0.0, 0.2),
        (" bc", 0.2, 0.6),
        (" d", 0.6, 0.9),
    ]
    np.testing.assert_allclose([word.probability for word in found], [0.5, 0.3, 1.0])


def test_punctuation_belongs_to_words():
    texts = [" He", " said", ",", ' "', "yes", ".", '"']
    words = [TimedWord(text, (at,), at, at + 1, 1.0) for at, text in enumerate(texts)]
    assert [word.text for word in with_punctuation(words)] == [" He", " said,", ' "yes."']


def test_a_word_after_a_pause_is_not_as_long_as_the_pause():
    words = [TimedWord(" a", (1,), 0.0, 9.0, 1.0), TimedWord(" b", (2,), 9.0, 9.3, 1.0)]
    found, start, end = within_segment(words, 0.0, 9.3, 0.3, 0.0)
    assert (round(found[0].start, 2), start, end) == (8.4, found[0].start, 9.3)


def test_split_words(tmp_path):
    whisper(WHISPERS[0], 0, tmp_path)
    tokenizer = models.load(tmp_path, threads=1).tokenizer
    tokens = tokenizer.encode(" Ein schöner Tag, ja.")
    found = split_words(tokenizer, tokens, "de")
    assert [text for text, _ in found] == [" Ein", " schöner", " Tag", ",", " ja", "."]
    assert [token for _, own in found for token in own] == tokens
    characters = split_words(tokenizer, tokenizer.encode("日本"), "ja")
    assert [text for text, _ in characters] == ["日", "本"]


def test_words_of_a_transcript(tmp_path):
    """Words are the text, in order, within the audio; one without a space before it may begin in another segment."""
    whisper(WHISPERS[0], 3, tmp_path)
    model = models.load(tmp_path, threads=1)
    options = {"beams": 1, "temperature": 0.0, "no_speech_threshold": None, "language": "en"}
    made = model.transcribe(tones(SECONDS), word_timestamps=True, **options)
    assert made.segments
    words = [word for segment in made.segments for word in segment.words]
    assert "".join(word.text for word in words) == "".join(segment.text for segment in made.segments)
    assert all(0 <= word.start <= word.end <= SECONDS for word in words)
    assert made.segments[0].start == pytest.approx(words[0].start, abs=0.02)
    assert "words" in made.to_json()["segments"][0]
