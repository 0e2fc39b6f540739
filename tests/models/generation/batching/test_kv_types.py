"""KV caches of each type: logits are transformers' with keys and values that gguf rounds, and a full cache loses no
request."""

import dataclasses

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.models.generation.batching.engine import Engine
from candle_convert.models.generation.batching.model_rows import decoding_rows
from candle_convert.models.generation.batching.request import Request
from candle_convert.models.generation.batching.state_arrays import BLOCK
from candle_convert.models.generation.sampling import GREEDY
from candle_convert.tests.builders.decoder_cases import decoder
from candle_convert.tests.builders.numbered_tokens import NumberedTokens
from candle_convert.tests.oracles.transformers import made

KNOWN = 90


def loaded(name, folder, size=32):
    case = decoder(name)
    reference = made(dataclasses.replace(case, config={**case.config, "head_dim": size}), 0, folder)
    model = models.load(folder, threads=1)
    model.tokenizer = NumberedTokens(KNOWN)
    return reference, model


def rounded_logits(reference, ids):
    """Transformers' logits with a cache that holds what blocks of gguf stand for."""
    import torch
    import transformers

    quants = pytest.importorskip("gguf").quants

    def rounded(x):
        blocks = quants.quantize(x.detach().numpy(), quants.GGMLQuantizationType.Q8_0)
        return torch.from_numpy(quants.dequantize(blocks, quants.GGMLQuantizationType.Q8_0))

    class Rounded(transformers.DynamicCache):
        def update(self, key_states, value_states, layer_idx, *arguments, **options):
            return super().update(rounded(key_states), rounded(value_states), layer_idx, *arguments, **options)

    with torch.no_grad():
        return reference(torch.tensor([ids]), past_key_values=Rounded(), use_cache=True).logits[0].numpy()


@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen3_moe"])
def test_blocks(name, tmp_path):
    reference, model = loaded(name, tmp_path)
    model.store_cache_as("q8_0")
    ids = np.random.default_rng(0).integers(3, KNOWN, 30).tolist()
    wanted = rounded_logits(reference, ids)
    largest = np.abs(wanted).max()
    assert np.abs(model.logits(ids)[0] - wanted).max() < 1e-3 * largest
    cache = model.start(1)
    model.advance([ids[:-3]], cache)
    for position in (-3, -2, -1):
        assert np.abs(model.advance([[ids[position]]], cache)[0] - wanted[position]).max() < 1e-3 * largest
    assert {array.dtype for array in cache.states.values()} == {np.dtype(np.uint8)}


def test_sixteen_requests_in_a_cache_for_three(tmp_path):
    """Each answer is that of a lone run, and no request is lost."""
    _, model = loaded("llama", tmp_path)
    sizes = {}
    for kv_type in ("f32", "f16", "q8_0"):
        model.store_cache_as(kv_type)
        sizes[kv_type] = decoding_rows(model, 1, 128, None).states.token_nbytes
    assert (sizes["f16"] / sizes["f32"], sizes["q8_0"] / sizes["f16"]) == (1 / 2, 34 / 64)
    rng = np.random.default_rng(1)
    asked = [Request(rng.integers(3, KNOWN, 5 + index).tolist(), 60, GREEDY) for index in range(16)]
    wanted = []
    for request in asked:
        engine = Engine(model, parallel=1, context=128)
        wanted.append([event.token for event in engine.submit(request)])
        engine.close()
    engine = Engine(model, parallel=16, context=128, max_memory=3 * 2 * BLOCK * sizes["q8_0"])
    handles = [engine.submit(request) for request in asked]
    running, found = [], []
    for handle in handles:
        tokens = []
        for event in handle:
            running.append(engine.running)
            tokens.append(event.token)
        found.append(tokens)
    engine.close()
    assert found == wanted
    assert max(running) == 3


def test_what_is_refused(tmp_path):
    _, model = loaded("llama", tmp_path, 16)
    for kv_type in ("q4_0", "q8_0"):
        with pytest.raises(cc.UsageError) as error:
            model.store_cache_as(kv_type)
        assert error.value.code == "E-LM-KV-TYPE"
    assert model.generate([5, 6, 7], max_tokens=3, temperature=0)
