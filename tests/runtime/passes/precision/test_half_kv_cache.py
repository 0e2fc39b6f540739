"""f16 KV caches: used if weights are 16-bit or quantized and text is generated, not otherwise."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.tests.builders.tiny_llama import written


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("narrow")
    path = written(folder / "m.gguf")
    cc.convert(path, folder / "half.gguf", dtype="f16")
    return path, folder / "half.gguf"


def kinds(cache):
    return {array.dtype for name, array in cache.states.items()}


def test_halves_are_kept_of_narrow_weights(paths):
    ids = np.arange(3, 15)[None]
    for path, kind in zip(paths, (np.float32, np.float16), strict=True):
        model = models.load(path, threads=1)
        cache = model.start(1)
        model.advance(ids[:, :8], cache)
        found = model.advance(ids[:, 8:], cache)
        assert kinds(cache) == {np.dtype(kind)}
        wanted = model.logits(ids)[:, -1]
        np.testing.assert_allclose(found, wanted, atol=0.02 * np.abs(wanted).max())
        after, seen = model.step([[5]], cache)
        assert kinds(seen) == {np.dtype(np.float32)}
        exact = model.logits(np.append(ids, [[5]], 1))[:, -1]
        np.testing.assert_allclose(after[:, -1], exact, atol=0.02 * np.abs(exact).max())
