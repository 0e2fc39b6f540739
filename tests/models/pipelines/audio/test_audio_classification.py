"""Labels and vectors of sounds: transformers' extractor and model are right."""

import candle_convert as cc
import numpy as np
import pytest
import torch
import transformers
from candle_convert.tests.builders.audio_networks import AST
from candle_convert.tests.builders.image_checkpoints import image_model, saved

SAMPLES = 0.1 * np.random.default_rng(0).standard_normal(12_000).astype(np.float32)
"""Two spectrograms, the second of which is shorter."""


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ast") / "hf"
    model = image_model("ASTForAudioClassification", **AST, id2label=dict(enumerate("abcde")))
    extractor = transformers.ASTFeatureExtractor(num_mel_bins=32, max_length=40, mean=-3.0)
    extractor.save_pretrained(folder)
    return model, extractor, saved(model, folder)


def outputs(case, samples):
    model, extractor, _ = case
    with torch.no_grad():
        given = extractor(samples, sampling_rate=16_000, return_tensors="pt")["input_values"]
        return model(given).logits[0].softmax(-1).numpy(), model.audio_spectrogram_transformer(given).pooler_output[0]


@pytest.mark.filterwarnings("ignore:At least one mel filter")
def test_labels(case, tmp_path):
    scores, vector = outputs(case, SAMPLES[:6_000])
    model = cc.models.load(case[2])
    found = model.predict(SAMPLES[:6_000], top=None)
    assert [each["label"] for each in found] == ["abcde"[place] for place in np.argsort(-scores)]
    np.testing.assert_allclose([each["score"] for each in found], np.sort(scores)[::-1], atol=1e-5)
    np.testing.assert_allclose(
        cc.models.load(case[2], task="audio-feature-extraction").embed(SAMPLES[:6_000]), vector, rtol=1e-3, atol=1e-4
    )
    cc.convert(case[2], tmp_path / "onnx", to="onnx")
    assert cc.models.load(tmp_path / "onnx").predict(SAMPLES[:6_000], top=1)[0]["label"] == found[0]["label"]


@pytest.mark.filterwarnings("ignore:At least one mel filter")
def test_longer_sounds_are_averaged(case):
    length = 39 * 160 + 400
    parts = [outputs(case, part)[0] for part in (SAMPLES[:length], SAMPLES[length:])]
    share = (len(SAMPLES) - length) / length
    expected = (parts[0] + share * parts[1]) / (1 + share)
    found = {each["label"]: each["score"] for each in cc.models.load(case[2]).predict(SAMPLES, top=None)}
    np.testing.assert_allclose([found[name] for name in "abcde"], expected, atol=1e-5)


def test_lists_and_progress(case):
    model, seen = cc.models.load(case[2]), []
    found = model.predict([SAMPLES, (SAMPLES, 8_000)], top=2, progress=lambda done, total: seen.append((done, total)))
    assert [len(each) for each in found] == [2, 2]
    assert seen == [(1, 2), (2, 2)]
    with pytest.raises(cc.Error, match="task is audio-classification"):
        model.embed(SAMPLES)
