"""Every encoder-decoder against transformers: full passes, decoding through the caches, and the files it exports."""

import json
from functools import partial

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
from candle_convert import models
from candle_convert.models.layers.relative_position import buckets_of
from candle_convert.tests.builders.encoder_decoder_cases import ENCODER_DECODERS, inputs
from candle_convert.tests.oracles.transformers import difference, made, transformers

MASKS = {"logits": "decoder_attention_mask", "encoder_last_hidden_state": "attention_mask"}
"""The mask of the tokens whose rows an output has."""


def expected(model, arrays):
    """The outputs of transformers by name."""
    import torch

    with torch.no_grad():
        found = model(**{name: torch.tensor(array) for name, array in arrays.items()}, use_cache=False)
    return {name: found[name].numpy() for name in MASKS}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("case", ENCODER_DECODERS, ids=lambda case: case.name)
def test_as_transformers(case, seed, tmp_path):
    reference = made(case, seed, tmp_path)
    model = models.load(tmp_path, threads=1)
    for variant, arrays in inputs(case, seed).items():
        got, want = model(**arrays), expected(reference, arrays)
        assert set(got) == set(want)
        for name, array in want.items():
            mask = arrays.get(MASKS[name], np.ones(array.shape[:2]))
            assert difference(got[name], array * mask[..., None], mask) <= case.tolerance, (variant, name)


@pytest.mark.parametrize("case", ENCODER_DECODERS, ids=lambda case: case.name)
def test_token_by_token(case, tmp_path):
    """Texts of several lengths, each decoded by two rows that share its keys and values, and rows that are reordered
    and leave."""
    reference = made(case, 0, tmp_path)
    model = models.load(tmp_path, threads=1)
    arrays = inputs(case, 0)["padded"]
    source = {name: arrays[name] for name in ("input_ids", "attention_mask")}
    rng = np.random.default_rng(0)
    said = np.zeros((6, 0), np.int64)
    cache = model.start(**source, rows=2)
    for step in range(300):
        said = np.concatenate([said, rng.integers(0 if step else 1, 96, (len(said), 1)) * (step > 0)], 1)
        logits = model.decoder.advance(said[:, -1:], cache)
        if step in (0, 9, 299):
            rows = {name: array.repeat(2, 0)[: len(said)] for name, array in source.items()}
            want = expected(reference, {**rows, "decoder_input_ids": said})["logits"][:, -1]
            assert difference(logits, want) <= case.tolerance, step
        if step in (5, 8):
            chosen = [1, 1, 3, 2, 4, 4] if step == 5 else [1, 0, 3, 3]
            model.decoder.select(cache, chosen, rows=2)
            said = said[chosen]


@pytest.mark.parametrize("scaled", [True, False])
def test_scaled_logits_as_transformers_5_states_them(scaled, tmp_path):
    case = next(case for case in ENCODER_DECODERS if case.name == "t5")
    made(case, 0, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    stated = {**config, "tie_word_embeddings": True, "scale_decoder_outputs": scaled}
    (tmp_path / "config.json").write_text(json.dumps(stated))
    reference = transformers().T5ForConditionalGeneration.from_pretrained(tmp_path).eval()
    arrays = inputs(case, 0)["single"]
    got, want = (run(arrays)["logits"] for run in (lambda x: models.load(tmp_path)(**x), partial(expected, reference)))
    assert difference(got, want, np.ones(want.shape[:2])) <= case.tolerance


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (16, 32), (64, 1000), (20, 21), (4, 8)])
def test_buckets_of_distances(buckets, farthest, both_ways):
    import torch
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = np.arange(-2 * farthest, 2 * farthest)
    bucket = T5Attention._relative_position_bucket
    want = bucket(torch.tensor(distance), bidirectional=both_ways, num_buckets=buckets, max_distance=farthest)
    np.testing.assert_array_equal(buckets_of(distance, buckets, farthest, both_ways=both_ways), want.numpy())


def session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def decoded(decoder, tokens, given, past, cached):
    """Logits of tokens, and keys and values after them. Without a cache the past is one token that counts for nothing,
    as Optimum passes it."""
    feeds = {**given, "input_ids": tokens, "use_cache_branch": np.array([cached])}
    for item in decoder.get_inputs():
        if item.name.startswith("past_"):
            unused = np.full((len(tokens), item.shape[1], 1, item.shape[3]), 7, np.float32)
            feeds[item.name] = past.get(item.name, unused)
    found = dict(zip([item.name for item in decoder.get_outputs()], decoder.run(None, feeds), strict=True))
    return found.pop("logits"), {name.replace("present.", "past_key_values."): item for name, item in found.items()}


@pytest.mark.parametrize("case", ENCODER_DECODERS, ids=lambda case: case.name)
def test_the_onnx_files_compute_the_same(case, tmp_path):
    """All tokens at once, and token by token with the cache that the run before gave. No token is a padding token,
    which M2M-100 counts in a cache only."""
    reference = made(case, 0, tmp_path / "checkpoint")
    cc.convert(tmp_path / "checkpoint", tmp_path / "onnx", to="onnx")
    encoder, decoder = (session(tmp_path / f"onnx/{name}.onnx") for name in ("encoder_model", "decoder_model_merged"))
    arrays = inputs(case, 0)["padded"]
    del arrays["decoder_attention_mask"]
    tokens = arrays["decoder_input_ids"]
    tokens[:, 1:][tokens[:, 1:] == case.base["pad_token_id"]] = 3
    want = expected(reference, arrays)
    (hidden,) = encoder.run(None, {name: arrays[name] for name in ("input_ids", "attention_mask")})
    mask = arrays["attention_mask"]
    assert difference(hidden, want["encoder_last_hidden_state"] * mask[..., None], mask) <= case.tolerance
    given = {"encoder_attention_mask": mask, "encoder_hidden_states": hidden}
    logits, past = decoded(decoder, tokens, given, {}, False)
    assert difference(logits, want["logits"]) <= 1.5 * case.tolerance  # onnxruntime's rounding
    config = reference.config.to_dict()
    assert len(past) == 4 * config.get("decoder_layers", config.get("num_decoder_layers"))
    steps, past = [], {}
    for at in range(tokens.shape[1]):
        logits, past = decoded(decoder, tokens[:, at : at + 1], given, past, at > 0)
        steps.append(logits)
    assert difference(np.concatenate(steps, 1), want["logits"]) <= 1.5 * case.tolerance
