"""Every decoder family against transformers: padding on both sides, lengths past windows and trained contexts, step by
step with a cache."""

import numpy as np
import pytest
from candle_convert import models
from candle_convert.tests.builders.decoder_cases import DECODERS
from candle_convert.tests.oracles.transformers import expected, made, texts


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("case", DECODERS, ids=lambda case: case.name)
def test_as_transformers(case, seed, tmp_path):
    reference = made(case, seed, tmp_path)
    model = models.load(tmp_path, threads=1)
    for variant, (ids, mask) in texts(case, seed, reference).items():
        want = expected(reference, ids, mask)
        (got,) = model(input_ids=ids, attention_mask=mask).values()
        got = got if mask is None else got * mask[..., None]
        assert np.abs(got - want).max() <= case.tolerance * np.abs(want).max(), variant
    if case.cached:
        ids = texts(case, seed, reference)["long"][0][:, :20]
        whole = model.logits(ids)
        first, cache = model.step(ids[:, :5])
        steps = [first]
        for at in range(5, ids.shape[1]):
            step, cache = model.step(ids[:, at : at + 1], cache)
            steps.append(step)
        assert np.abs(np.concatenate(steps, axis=1) - whole).max() <= case.tolerance * np.abs(whole).max()
        cache = model.start(len(ids))
        model.advance(ids[:, :9], cache)
        states = dict(cache.states)
        assert np.abs(model.advance(ids[:, 9:], cache) - whole[:, -1]).max() <= case.tolerance * np.abs(whole).max()
        assert all(cache.states[name] is array for name, array in states.items() if "key_values" in name), (
            "the cache is written in place"
        )
