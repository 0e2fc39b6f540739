"""Sixteen requests at once with models of several kinds of states: each gets transformers' greedy tokens."""

import numpy as np
import pytest
from candle_convert import models
from candle_convert.models.generation.batching.engine import Engine
from candle_convert.models.generation.batching.model_rows import decoding_rows
from candle_convert.models.generation.batching.request import Request
from candle_convert.models.generation.sampling import GREEDY
from candle_convert.tests.builders.decoder_cases import decoder
from candle_convert.tests.builders.encoder_decoder_cases import ENCODER_DECODERS
from candle_convert.tests.builders.numbered_tokens import NumberedTokens
from candle_convert.tests.builders.recurrent_cases import RECURRENT
from candle_convert.tests.oracles.transformers import expected, made

COUNT = 10
"""Tokens of an answer."""
KNOWN = 90
"""Tokens of the tokenizer."""


def named(name):
    return next((case for case in (*RECURRENT, *ENCODER_DECODERS) if case.name == name), None) or decoder(name)


def prompts():
    """Prompts of 3 to 33 tokens, half of which begin alike."""
    rng = np.random.default_rng(3)
    shared = rng.integers(3, KNOWN, 12).tolist()
    return [(shared if index % 2 else []) + rng.integers(3, KNOWN, 3 + index).tolist() for index in range(16)]


def answers(model, asked, **options):
    engine = Engine(model, **options)
    handles = [engine.submit(Request(prompt, COUNT, GREEDY)) for prompt in asked]
    tokens = [[event.token for event in handle] for handle in handles]
    engine.close()
    assert [handle.error for handle in handles] == [None] * len(asked)
    assert engine.batched
    return tokens, sum(handle.usage.cached_tokens for handle in handles)


@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen3_moe", "bloom", "mamba", "falcon_h1"])
def test_decoders(name, tmp_path):
    reference = made(named(name), 0, tmp_path)
    model = models.load(tmp_path, threads=1)
    model.tokenizer = NumberedTokens(KNOWN)
    asked = prompts()
    wanted = []
    for prompt in asked:
        tokens = list(prompt)
        while len(tokens) < len(prompt) + COUNT:
            tokens.append(int(expected(reference, np.array([tokens]), None)[0, -1, :KNOWN].argmax()))
        wanted.append(tokens[len(prompt) :])
    tokens, cached = answers(model, asked)
    assert tokens == wanted
    assert cached == (0 if name in ("mamba", "falcon_h1") else 12 * 7)
    assert answers(model, asked, parallel=3)[0] == wanted


@pytest.mark.parametrize("name", ["llama", "gemma3", "mamba"])
def test_warm_rows(name, tmp_path):
    """Runs ahead of requests leave nothing in the states."""
    reference = made(named(name), 0, tmp_path)
    model = models.load(tmp_path, threads=1)
    model.tokenizer = NumberedTokens(KNOWN)
    rows = decoding_rows(model, 3, 60, None)
    assert sum(1 for _ in rows.warm_up(3)) == 11  # 6 lengths of prompts, 2 numbers of rows, 3 lengths to verify
    assert not any(array.any() for array in rows.states.arrays.values())
    for row, prompt in enumerate(prompts()[:3]):
        rows.start(row, Request(prompt, COUNT, GREEDY))
        rows.extend(row, prompt[:-1])
        logits = rows.step([row], prompt[-1:])
        np.testing.assert_allclose(
            logits[0], expected(reference, np.array([prompt]), None)[0, -1], rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("name", ["mt5", "bart"])
def test_encoder_decoders(name, tmp_path):
    import torch

    reference = made(named(name), 0, tmp_path)
    model = models.load(tmp_path, threads=1)
    model.tokenizer = NumberedTokens(KNOWN)
    beyond = list(range(KNOWN, reference.config.vocab_size))
    asked = prompts()
    wanted = [
        reference.generate(
            torch.tensor([prompt]),
            max_new_tokens=COUNT,
            do_sample=False,
            num_beams=1,
            suppress_tokens=beyond or None,
            eos_token_id=None,
        )[0, 1:].tolist()
        for prompt in asked
    ]
    assert answers(model, asked)[0] == wanted
    assert answers(model, asked, parallel=3)[0] == wanted
