"""Gemma 3 270M in Q4_K_M, as llama.cpp runs it: the likeliest token after ten prompts, 64 times each. CANDLE_GEMMA3_GGUF names the file."""

import os

import numpy as np
import pytest
from candle_convert import models
from oracles.libllama import NAME, Libllama

FILE = os.environ.get("CANDLE_GEMMA3_GGUF")
COUNT = 64
ROUNDING = {"f32": 0.5, "q8": 1.0}
"""Logits that rounding activations to 8 bits moves past one another at most, where llama.cpp alone does so and where both do. Single ones
move by up to three."""
PROMPTS = [
    "The capital of France is", "Once upon a time", "def fibonacci(n):\n", "Water boils at a temperature of", "Liebe Freunde, heute",
    "1, 1, 2, 3, 5, 8,", "The three primary colours are", "Dear Sir or Madam,\n\n", "機械学習とは", "In 1969, the first human",
]  # fmt: skip
pytestmark = [
    pytest.mark.skipif(FILE is None, reason="CANDLE_GEMMA3_GGUF names no file"),
    pytest.mark.skipif(NAME is None, reason="CANDLE_LIBLLAMA names no library"),
]


@pytest.fixture(scope="module", params=ROUNDING)
def both(request):
    return models.load(FILE, threads=1, activations=request.param), Libllama(FILE), ROUNDING[request.param]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_likeliest_tokens_are_llamas(both, prompt):
    ours, theirs, rounding = both
    ids = ours.tokenizer.encode(prompt)
    cache = ours.start(1)
    theirs.clear()
    mine, peer = ours.advance([ids], cache)[0], theirs.advance(ids)
    for _ in range(COUNT):
        token, other = int(mine.argmax()), int(peer.argmax())
        assert token == other or (mine[token] - mine[other] <= rounding and peer[other] - peer[token] <= rounding), (token, other)
        assert np.abs(mine - peer).max() <= 3
        mine, peer = ours.advance([[other]], cache)[0], theirs.advance([other])
