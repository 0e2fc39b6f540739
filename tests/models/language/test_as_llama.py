"""Gemma 3 270M in Q4_K_M, as llama.cpp runs it: the likeliest token after ten prompts, 64 times each. CANDLE_GEMMA3_GGUF names the file."""

import os

import numpy as np
import pytest
from candle_convert import models
from libllama import NAME, Libllama

FILE = os.environ.get("CANDLE_GEMMA3_GGUF")
COUNT = 64
ROUNDING = 0.5
"""Logits that llama.cpp's rounding of activations to 8 bits moves past one another at most; single ones it moves by up to 3."""
PROMPTS = [
    "The capital of France is", "Once upon a time", "def fibonacci(n):\n", "Water boils at a temperature of", "Liebe Freunde, heute",
    "1, 1, 2, 3, 5, 8,", "The three primary colours are", "Dear Sir or Madam,\n\n", "機械学習とは", "In 1969, the first human",
]  # fmt: skip
pytestmark = [
    pytest.mark.skipif(FILE is None, reason="CANDLE_GEMMA3_GGUF names no file"),
    pytest.mark.skipif(NAME is None, reason="CANDLE_LIBLLAMA names no library"),
]


@pytest.fixture(scope="module")
def both():
    return models.load(FILE, threads=1), Libllama(FILE)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_likeliest_tokens_are_llamas(both, prompt):
    ours, theirs = both
    ids = ours.tokenizer.encode(prompt)
    cache = ours.start(1)
    theirs.clear()
    mine, peer = ours.advance([ids], cache)[0], theirs.advance(ids)
    for _ in range(COUNT):
        token, other = int(mine.argmax()), int(peer.argmax())
        assert token == other or (mine[token] - mine[other] <= ROUNDING and peer[other] - peer[token] <= ROUNDING), (token, other)
        assert np.abs(mine - peer).max() <= 6 * ROUNDING
        mine, peer = ours.advance([[other]], cache)[0], theirs.advance([other])
