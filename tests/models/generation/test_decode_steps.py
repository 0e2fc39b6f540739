"""Tokens one after another over the same arrays: what comes out is what a run that is fed anew gives, whatever happens
between them."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.tests.builders.tiny_llama import written


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return models.load(written(tmp_path_factory.mktemp("decoding") / "m.gguf"), threads=2)


def wanted(model, tokens):
    return model.logits(tokens)[:, -1]


def close(found, exact):
    np.testing.assert_allclose(found, exact, atol=0.02 * np.abs(exact).max())


def test_tokens_are_what_whole_runs_give(model):
    tokens = np.arange(3, 27).reshape(2, 12)
    cache = model.start(2)
    model.advance(tokens[:, :4], cache)
    kept = [model.advance(tokens[:, place : place + 1], cache) for place in range(4, 12)]
    assert cache.decode_step is not None
    assert cache.decode_step.run is not None
    assert cache.length == 12
    for place, found in zip(range(4, 12), kept, strict=True):
        close(found, wanted(model, tokens[:, : place + 1]))
    assert len({id(array) for array in kept}) == len(kept)
    assert np.array_equal(tokens, np.arange(3, 27).reshape(2, 12))


def test_more_tokens_a_mask_a_copy_and_more_room_in_between(model):
    ids = [int(token) for token in np.random.default_rng(0).integers(3, 30, 270)]
    cache = model.start(1)
    model.advance([ids[:250]], cache)
    for token in ids[250:254]:
        model.advance([[token]], cache)
    other = cache.copy()
    found = model.advance([[7]], other)
    close(found, wanted(model, [*ids[:254], 7]))
    for token in ids[254:258]:  # the first room is for 256
        found = model.advance([[token]], cache)
    close(found, wanted(model, ids[:258]))
    model.advance([ids[258:261]], cache)
    for token in ids[261:264]:
        found = model.advance([[token]], cache)
    close(found, wanted(model, ids[:264]))
    model.advance([[9]], cache, mask=[[0]])
    for token in ids[264:267]:
        found = model.advance([[token]], cache)
    close(found, wanted(model, ids[:267]))
    close(model.advance([[7]], other), wanted(model, [*ids[:254], 7, 7]))


def test_a_limit_that_is_chosen_later_counts(model):
    cache = model.start(1)
    for token in (3, 4, 5, 6):
        model.advance([[token]], cache)
    with pytest.raises(cc.LimitError, match="memory"), cc.limits(memory="1KiB"):
        model.advance([[7]], cache)


@pytest.mark.parametrize("count", [258, 263, 520])
def test_long_prompts_are_taken_piece_by_piece(model, count):
    ids = np.random.default_rng(count).integers(3, 30, (2, count))
    mask = np.ones_like(ids)
    mask[1, :5] = 0
    cache, whole = model.start(2), model.start(2)
    found = model.advance(ids, cache, mask)
    expected = model.step(ids, whole, mask)[0]
    close(found, expected[:, -1])
    assert cache.length == count
    token = found.argmax(1)[:, None]
    close(
        model.advance(token, cache),
        model.logits(np.hstack([ids, token]), np.hstack([mask, np.ones_like(token)]))[:, -1],
    )
