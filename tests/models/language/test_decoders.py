"""Every decoder family against transformers: padding on both sides, lengths past windows and trained contexts, token by
token with a cache, and through GGUF's names and back."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.convert.load.bind import bind_model, build_graph
from candle_convert.models.generation.language_model import LanguageModel
from candle_convert.runtime.base.errors import UnsupportedError
from candle_convert.runtime.contract.architecture import GGUF, HF
from candle_convert.runtime.contract.weight_binding import unbind
from candle_convert.tests.builders.decoder_cases import DECODERS, WITHOUT_GGUF
from candle_convert.tests.oracles.transformers import converted, difference, expected, made, texts


@pytest.mark.parametrize("case", [*DECODERS, *WITHOUT_GGUF], ids=lambda case: case.name)
def test_as_transformers(case, tmp_path):
    reference = made(case, 0, tmp_path)
    model = models.load(tmp_path, threads=1)
    for variant, (ids, mask) in texts(case, 0, reference).items():
        assert difference(model.logits(ids, mask), expected(reference, ids, mask), mask) <= case.tolerance, variant
    ids = texts(case, 0, reference)["long"][0][:, :20]
    cache = model.start(len(ids))
    model.advance(ids[:, :9], cache)
    states = dict(cache.states)
    assert difference(model.advance(ids[:, 9:], cache), expected(reference, ids, None)[:, -1]) <= case.tolerance
    assert all(cache.states[name] is array for name, array in states.items() if "key_values" in name), (
        "the cache is written in place"
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", DECODERS, ids=lambda case: case.name)
def test_token_by_token_through_other_names(case, tmp_path):
    reference = made(case, 1, tmp_path)
    read = bind_model(cc.open(tmp_path))
    there = converted(read, GGUF)
    as_stored(unbind(there.architecture, there.config, there.weights, HF), read)
    as_expected(converted(there, HF), case, reference)


@pytest.mark.parametrize("case", WITHOUT_GGUF, ids=lambda case: case.name)
def test_token_by_token_without_gguf_names(case, tmp_path):
    reference = made(case, 1, tmp_path)
    read = bind_model(cc.open(tmp_path))
    if not read.architecture.gguf:
        with pytest.raises(UnsupportedError, match="E-ARCH-NAMES"):
            converted(read, GGUF)
    as_stored(unbind(read.architecture, read.config, read.weights, HF), read)
    as_expected(converted(read, HF), case, reference)


def as_stored(back, read):
    """Weights under the names of their file have its values; those of layouts that compute, but for rounding."""
    source = read.source.weights
    assert back.keys() <= source.keys()
    rows = (*read.architecture.weights, *read.task.weights)
    computed = any(stored.layout.computed for row in rows for stored in row.stored(HF))
    for name, tensor in back.items():
        error = np.abs(tensor.cast("f32").numpy() - source[name].cast("f32").numpy()).max()
        assert error <= (2e-7 if computed else 0), name


def as_expected(made_of, case, reference):
    """Logits of a prompt of 7 tokens, then of one token at a time, are those of transformers."""
    found = texts(case, 1, reference)
    ids, mask = found["left padding"] if case.padded else found["long"]
    model = LanguageModel(build_graph(made_of), threads=1)
    step, cache = model.step(ids[:, :7], mask=None if mask is None else mask[:, :7])
    steps = [step]
    for at in range(7, ids.shape[1]):
        step, cache = model.step(ids[:, at : at + 1], cache, None if mask is None else mask[:, at : at + 1])
        steps.append(step)
    assert difference(np.concatenate(steps, axis=1), expected(reference, ids, mask), mask) <= case.tolerance
