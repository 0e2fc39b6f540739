"""Speculative decoding: greedy tokens are transformers', sampled ones have the distribution of its logits."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.models.generation.batching.engine import Engine
from candle_convert.models.generation.batching.request import Request
from candle_convert.models.generation.batching.rows import SeparateRows
from candle_convert.models.generation.batching.speculation import Speculation
from candle_convert.models.generation.sampling import GREEDY, Sampling, distribution, draw_drafted
from candle_convert.models.tokenizer.core.vocabulary import NORMAL, Vocabulary
from candle_convert.tests.builders.decoder_cases import decoder
from candle_convert.tests.builders.numbered_tokens import NumberedTokens
from candle_convert.tests.builders.paths import EXAMPLES
from candle_convert.tests.builders.recurrent_cases import RECURRENT
from candle_convert.tests.oracles.transformers import expected, made
from scipy import stats

KNOWN = 90
"""Tokens of the tokenizer."""


def loaded(name, seed, folder):
    """A tiny model, and transformers' one."""
    folder.mkdir(exist_ok=True)
    reference = made(decoder(name), seed, folder)
    model = models.load(folder, threads=1)
    model.tokenizer = NumberedTokens(KNOWN)
    return model, reference


def greedy(reference, prompt, count):
    """Transformers' greedy tokens."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + count:
        tokens.append(int(expected(reference, np.array([tokens]), None)[0, -1, :KNOWN].argmax()))
    return tokens[len(prompt) :]


def answers(model, requests, speculation, **options):
    engine = Engine(model, speculation=speculation, **options)
    handles = [engine.submit(request) for request in requests]
    tokens = [[event.token for event in handle] for handle in handles]
    engine.close()
    assert [handle.error for handle in handles] == [None] * len(requests)
    assert engine.timing.drafted_tokens == sum(handle.usage.drafted_tokens for handle in handles)
    assert engine.timing.accepted_tokens == sum(handle.usage.accepted_tokens for handle in handles)
    assert engine.timing.generated_tokens == sum(map(len, tokens)) - len(requests)
    return tokens, engine.timing


@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen3_moe"])
def test_greedy_tokens(name, tmp_path):
    model, reference = loaded(name, 0, tmp_path / "model")
    other, _ = loaded(name, 1, tmp_path / "draft")
    rng = np.random.default_rng(3)
    prompts = [rng.integers(3, KNOWN, 4).tolist() * 3 + rng.integers(3, KNOWN, index).tolist() for index in range(6)]
    count = 12
    wanted = [greedy(reference, prompt, count) for prompt in prompts]
    requests = [Request(prompt, count, GREEDY) for prompt in prompts]
    for parallel in (1, 4):
        for speculation in (Speculation(), Speculation(tokens=1), Speculation(other, 5)):
            tokens, timing = answers(model, requests, speculation, parallel=parallel)
            assert tokens == wanted
            assert timing.drafted_tokens > 0
        tokens, timing = answers(model, requests, Speculation(model, 3), parallel=parallel)
        assert tokens == wanted
        assert timing.accepted_tokens == timing.drafted_tokens > len(prompts) * count / 2


def test_greedy_tokens_past_ring_buffers(tmp_path):
    """The ring buffers of a window of 16 have 768 tokens: rejected ones overwrite only what no query sees."""
    model, reference = loaded("gemma3", 0, tmp_path / "model")
    other, _ = loaded("gemma3", 1, tmp_path / "draft")
    model.context = other.context = None
    prompt = np.random.default_rng(5).integers(3, KNOWN, 762).tolist()
    wanted = greedy(reference, prompt, 20)
    for speculation in (Speculation(other, 7), Speculation(model, 7)):
        engine = Engine(model, parallel=2, context=900, speculation=speculation)
        for _ in range(2):
            assert [event.token for event in engine.submit(Request(prompt, 20, GREEDY))] == wanted
        assert engine.timing.drafted_tokens > 0
        engine.close()


def test_texts_end_where_they_would(tmp_path):
    """Limits, a full context and stop strings cut what was proposed."""
    model, reference = loaded("llama", 0, tmp_path / "model")
    prompt = [5, 6, 7] * 4
    whole = greedy(reference, prompt, 30)
    for speculation in (Speculation(), Speculation(model, 9)):
        for context, count in ((64, 7), (20, 30), (64, 1)):
            tokens, _ = answers(model, [Request(prompt, count, GREEDY)], speculation, context=context)
            assert tokens == [whole[: min(count, context - len(prompt))]]
        stop = f"{whole[4]} {whole[5]} "
        first = next(index for index in range(30) if whole[index : index + 2] == whole[4:6])
        engine = Engine(model, speculation=speculation)
        handle = engine.submit(Request(prompt, 30, GREEDY, [stop]))
        assert handle.text() == "".join(f"{token} " for token in whole[:first])
        again = engine.submit(Request(prompt + whole[:first] + [3], 3, GREEDY))
        assert [event.token for event in again] == greedy(reference, prompt + whole[:first] + [3], 3)
        assert again.usage.cached_tokens == len(prompt) + first
        engine.close()


def test_a_looked_up_text_of_a_seed_is_that_without_it():
    model = models.load(EXAMPLES / "tiny_llama", threads=1)
    prompt = "And God said unto the king, and God said unto the"
    for options in ({"seed": 3}, {"seed": 4, "temperature": 1.3, "repeat_penalty": 1.2}):
        assert model.generate(prompt, max_tokens=40, speculate=6, **options) == model.generate(
            prompt, max_tokens=40, **options
        )
    pieces = model.generate(prompt, max_tokens=40, speculate=6, draft=model, stream=True, temperature=0)
    assert "".join(pieces) == model.generate(prompt, max_tokens=40, temperature=0)


SAMPLINGS = [
    Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0),
    Sampling(temperature=0.7, top_k=5, top_p=0.9, min_p=0.02),
]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_drafted_tokens_have_the_distribution(sampling):
    """As many tokens of each kind as torch's softmax says, whatever the draft proposes."""
    import torch

    rng = np.random.default_rng(0)
    ours, theirs = (rng.normal(0, 1.5, 7).astype(np.float32) for _ in range(2))
    wide = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    source = distribution(theirs, wide)
    random = np.random.default_rng(1)
    found = np.zeros(7)
    count = 20_000
    for _ in range(count):
        token = int(random.choice(source[0], p=source[1]))
        found[draw_drafted(ours.copy(), sampling, token, source, random)] += 1
    wanted = torch.softmax(torch.from_numpy(ours).double() / sampling.temperature, 0).numpy()
    kept = [draw == 1 for draw in np.isin(np.arange(7), distribution(ours, sampling)[0])]
    wanted = np.where(kept, wanted, 0) / wanted[kept].sum()
    assert found[~np.array(kept)].sum() == 0
    assert stats.chisquare(found[kept], count * wanted[kept]).pvalue > 1e-3


def test_sampled_texts_have_the_distribution(tmp_path):
    """The second and third token of many seeds, against the probabilities of transformers' logits."""
    import torch

    size = 5
    model, reference = loaded("llama", 0, tmp_path / "model")
    other, _ = loaded("llama", 1, tmp_path / "draft")
    model.tokenizer = other.tokenizer = NumberedTokens(size)
    prompt = [3, 4, 1, 3, 4, 1, 3, 4]
    sampling = Sampling(temperature=2.0, top_k=0, top_p=1.0, min_p=0.0)

    def probabilities(tokens):
        logits = expected(reference, np.array([tokens]), None)[0, -1, :size]
        return torch.softmax(torch.from_numpy(np.asarray(logits)).double() / 2, 0).numpy()

    wanted = np.zeros((size, size, size))
    for first, one in enumerate(probabilities(prompt)):
        for second, two in enumerate(probabilities([*prompt, first])):
            wanted[first, second] = one * two * probabilities([*prompt, first, second])
    count = 3000
    requests = [Request(prompt, 3, sampling, seed=seed) for seed in range(count)]
    for speculation in (Speculation(), Speculation(other, 2)):
        tokens, timing = answers(model, requests, speculation)
        assert 0 < timing.accepted_tokens < timing.drafted_tokens
        found = np.zeros((size, size, size))
        np.add.at(found, tuple(np.array(tokens).T), 1)
        enough = count * wanted >= 5
        seen = np.append(found[enough], found[~enough].sum())
        expect = np.append(wanted[enough], wanted[~enough].sum()) * count
        assert stats.chisquare(seen[expect > 0], expect[expect > 0]).pvalue > 1e-3


def test_a_draft_that_computes_nan(tmp_path):
    """Its logits end its proposals; the text is that without it."""
    model, reference = loaded("llama", 0, tmp_path / "model")
    other, _ = loaded("llama", 1, tmp_path / "draft")
    advance, runs = other.advance_rows, []

    def damaged(*arguments, **options):
        runs.append(advance(*arguments, **options))
        return runs[-1] * np.float32(np.nan) if len(runs) % 3 == 0 else runs[-1]

    other.advance_rows = damaged
    prompt = [5, 6, 7] * 4
    tokens, timing = answers(model, [Request(prompt, 12, GREEDY)], Speculation(other, 4))
    assert tokens == [greedy(reference, prompt, 12)]
    assert timing.drafted_tokens > 0
    answers(model, [Request(prompt, 12, Sampling(seed=1)), Request(prompt, 12, GREEDY)], Speculation(other, 4))


def test_a_cache_that_cannot_be_cut_back(tmp_path):
    """Rejected tokens that stay in a cache are an error, not another text."""
    model, _ = loaded("llama", 0, tmp_path / "model")
    rows = SeparateRows(model, 64, lambda request: model.start(1))
    rows.start(0, Request([3, 4, 5], 4))
    rows.extend(0, [3, 4, 5])
    rows.truncate(0, 2)
    model.rewind = lambda cache, length: False
    with pytest.raises(cc.UsageError, match="E-SPECULATE-STATES"):
        rows.truncate(0, 1)


@pytest.mark.filterwarnings("error")
def test_a_temperature_near_0():
    tokens, probabilities = distribution(np.float32([1, 9, 2]), Sampling(temperature=1e-310, top_p=1.0, min_p=0.0))
    assert dict(zip(tokens.tolist(), probabilities.tolist(), strict=True)) == {1: 1.0, 2: 0.0, 0: 0.0}


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_frequencies_of_the_length_are_refused(kind, tmp_path, monkeypatch):
    """A run over proposed tokens would rotate by other frequencies than runs of one token."""
    model, _ = loaded("llama", 0, tmp_path / "model")
    monkeypatch.setitem(model.options.config.values, "scaling", {"type": kind, "factor": 2.0})
    with pytest.raises(cc.UsageError, match=f"rotary scaling {kind}") as error:
        Engine(model, speculation=Speculation())
    assert error.value.code == "E-SPECULATE-MODEL"


def test_what_is_refused(tmp_path):
    model, _ = loaded("llama", 0, tmp_path / "model")
    other, _ = loaded("llama", 1, tmp_path / "draft")
    other.tokenizer.vocabulary = Vocabulary([f"{token}. " for token in range(KNOWN)], [NORMAL] * KNOWN)
    for found in ("'0. '", "89 tokens"):
        with pytest.raises(cc.UsageError, match="the draft has another vocabulary than the model") as error:
            Engine(model, speculation=Speculation(other))
        assert (error.value.code, error.value.found) == ("E-SPECULATE-VOCABULARY", found)
        other.tokenizer = NumberedTokens(KNOWN - 1)
    with pytest.raises(cc.UsageError) as error:
        model.generate([3, 4], draft=other)
    assert error.value.code == "E-SPECULATE-VOCABULARY"
    for count in (-1, 65, True, 1.5):
        with pytest.raises(cc.UsageError) as error:
            model.generate([3, 4], speculate=count)
        assert error.value.code == "E-SPECULATE-RANGE"
    with pytest.raises(cc.UsageError, match="the draft does not continue texts") as error:
        model.generate([3, 4], draft=object())
    assert error.value.code == "E-SPECULATE-MODEL"
    (folder := tmp_path / "mamba").mkdir()
    made(next(case for case in RECURRENT if case.name == "mamba"), 0, folder)
    recurrent = models.load(folder, threads=1)
    recurrent.tokenizer = NumberedTokens(KNOWN)
    for refused in (
        {"model": recurrent, "speculation": Speculation()},
        {"model": model, "speculation": Speculation(recurrent)},
    ):
        with pytest.raises(cc.UsageError, match="cannot") as error:
            Engine(**refused)
        assert error.value.code == "E-SPECULATE-STATES"
