"""Whisper against transformers: full passes, and decoding through the caches."""

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
from candle_convert import models
from candle_convert.runtime.base.errors import UsageError
from candle_convert.tests.builders.speech_checkpoints import SECONDS, VOCABULARY, WHISPERS, whisper
from candle_convert.tests.oracles.transformers import difference


def features(case, batch, seed=0):
    bands = case.config.get("num_mel_bins", 80)
    return np.random.default_rng(seed).standard_normal((batch, bands, 100 * SECONDS), np.float32)


def expected(model, arrays):
    import torch

    with torch.no_grad():
        found = model(**{name: torch.tensor(array) for name, array in arrays.items()}, use_cache=False)
    return {name: found[name].numpy() for name in ("logits", "encoder_last_hidden_state")}


@pytest.mark.parametrize("case", WHISPERS, ids=lambda case: case.name)
def test_as_transformers(case, tmp_path):
    reference = whisper(case, 0, tmp_path)
    model = models.load(tmp_path, threads=1)
    ids = np.random.default_rng(1).integers(0, VOCABULARY, (2, 7))
    arrays = {"input_features": features(case, 2), "decoder_input_ids": ids}
    got, want = model(**arrays), expected(reference, arrays)
    assert set(got) == set(want)
    for name, array in want.items():
        assert difference(got[name], array) <= case.tolerance, name


def test_token_by_token(tmp_path):
    """Rows that share the keys and values of a window, are reordered, and leave."""
    case = WHISPERS[0]
    reference = whisper(case, 0, tmp_path)
    model = models.load(tmp_path, threads=1)
    windows = features(case, 2)
    rng = np.random.default_rng(0)
    said = np.zeros((4, 0), np.int64)
    cache = model.start(windows, rows=2)
    for step in range(80):
        said = np.concatenate([said, rng.integers(0, VOCABULARY, (len(said), 1))], 1)
        logits = model.decoder.advance(said[:, -1:], cache)
        if step in (0, 9, 79):
            arrays = {"input_features": windows.repeat(2, 0)[: len(said)], "decoder_input_ids": said}
            assert difference(logits, expected(reference, arrays)["logits"][:, -1]) <= case.tolerance, step
        if step in (5, 8):
            chosen = [1, 1, 3, 2] if step == 5 else [1, 0]
            model.decoder.select(cache, chosen, rows=2)
            said = said[chosen]


def test_shapes_that_do_not_fit(tmp_path):
    whisper(WHISPERS[0], 0, tmp_path)
    model = models.load(tmp_path, threads=1)
    with pytest.raises(UsageError, match="E-RUN-SHAPE"):
        model(np.zeros((1, 79, 200), np.float32), [[1]])
    with pytest.raises(UsageError, match="E-RUN-INPUT"):
        model(np.zeros((1, 80, 200), np.float32))


def test_exported(tmp_path):
    """The graphs by Optimum's names in onnxruntime, without and with the cache, and as they run here."""
    case = WHISPERS[0]
    reference = whisper(case, 0, tmp_path)
    cc.convert(tmp_path, tmp_path / "onnx", to="onnx", dtype="f32")
    encoder, decoder = (
        onnxruntime.InferenceSession(tmp_path / "onnx" / f"{name}.onnx")
        for name in ("encoder_model", "decoder_model_merged")
    )
    arrays = {"input_features": features(case, 2), "decoder_input_ids": np.array([[3, 1, 4, 1], [5, 9, 2, 6]])}
    want = expected(reference, arrays)
    (hidden,) = encoder.run(None, {"input_features": arrays["input_features"]})
    assert difference(hidden, want["encoder_last_hidden_state"]) <= case.tolerance
    pasts = {value.name: value.shape for value in decoder.get_inputs() if value.name.startswith("past_")}
    feeds = {name: np.zeros((2, shape[1], 0, shape[3]), np.float32) for name, shape in pasts.items()}
    feeds |= {"encoder_hidden_states": hidden, "input_ids": arrays["decoder_input_ids"][:, :3]}
    names = [value.name for value in decoder.get_outputs()]
    first = dict(zip(names, decoder.run(None, {**feeds, "use_cache_branch": np.array([False])}), strict=True))
    assert difference(first["logits"], want["logits"][:, :3]) <= case.tolerance
    feeds |= {name: first[name.replace("past_key_values", "present")] for name in pasts}
    feeds |= {"input_ids": arrays["decoder_input_ids"][:, 3:], "use_cache_branch": np.array([True])}
    assert difference(decoder.run(["logits"], feeds)[0], want["logits"][:, 3:]) <= case.tolerance
    model = models.load(tmp_path / "onnx", threads=1)
    assert model.verbs == ("transcribe",)
    assert difference(model(**arrays)["logits"], want["logits"]) <= case.tolerance


def test_attention_of_a_whole_text(tmp_path):
    """Scores of the upper layers' heads: their softmax is what transformers returns as attention."""
    import torch

    case = WHISPERS[0]
    reference = whisper(case, 0, tmp_path)
    reference.set_attn_implementation("eager")
    model = models.load(tmp_path, threads=1)
    windows, ids = features(case, 1), [5, 300, 7, 7, 2]
    logits, scores = model.attention(ids, model.encode(windows)[1])
    with torch.no_grad():
        found = reference(
            input_features=torch.tensor(windows), decoder_input_ids=torch.tensor([ids]), output_attentions=True
        )
    assert difference(logits, found.logits[0].numpy()) <= case.tolerance
    want = np.concatenate([layer[0].numpy() for layer in found.cross_attentions[1:]])
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    assert difference(powers / powers.sum(-1, keepdims=True), want) <= case.tolerance
