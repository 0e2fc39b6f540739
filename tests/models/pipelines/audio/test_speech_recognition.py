"""Texts of models that tell a token for each frame (CTC), and labels of samples: transformers' pipelines are right."""

import json
import shutil

import candle_convert as cc
import numpy as np
import pytest
import tokenizers
import torch
import transformers
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.audio_networks import WAV2VEC2
from candle_convert.tests.builders.image_checkpoints import image_model, saved
from candle_convert.tests.builders.speech_checkpoints import tones

TOKENS = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ETAONIHSRDLUMWCFGYPBVKXJQZ'"]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A folder with a model of random weights that speaks, and transformers' pipeline."""
    folder = tmp_path_factory.mktemp("ctc") / "hf"
    model = image_model("Wav2Vec2ForCTC", **WAV2VEC2)
    with torch.no_grad():  # so that all letters occur
        heard = torch.from_numpy(tones(3))[None]
        model.lm_head.bias -= model((heard - heard.mean()) / heard.std()).logits.mean((0, 1))
        model.lm_head.bias[1:4] -= 9
    saved(model, folder)
    (folder / "vocab.json").write_text(json.dumps({token: place for place, token in enumerate(TOKENS)}))
    tokenizer = transformers.Wav2Vec2CTCTokenizer(folder / "vocab.json")
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=True)
    for each in (tokenizer, extractor):
        each.save_pretrained(folder)
    pipeline = transformers.pipeline(
        "automatic-speech-recognition", model=model, tokenizer=tokenizer, feature_extractor=extractor
    )
    return folder, pipeline


def test_texts_and_words(both):
    folder, pipeline = both
    samples = tones(3)
    expected = pipeline(samples, return_timestamps="word")
    found = cc.models.load(folder).transcribe(samples, 16_000, word_timestamps=True)
    words = [word for segment in found.segments for word in segment.words]
    assert len(words) > 4
    assert found.text == " ".join(expected["text"].split())
    assert [word.text.strip() for word in words] == [each["text"] for each in expected["chunks"]]
    times = [each["timestamp"] for each in expected["chunks"]]
    np.testing.assert_allclose([word.start for word in words], [start for start, _ in times], atol=0.006)
    assert all(0 < word.probability <= 1 for word in words)


@pytest.mark.parametrize("seconds", [1.9, 2.0, 2.5, 6.3])
def test_windows(both, seconds):
    folder, pipeline = both
    samples = tones(seconds, seed=2)
    expected = pipeline(samples, chunk_length_s=2, stride_length_s=0.5)
    found = cc.models.load(folder).transcribe(samples, 16_000, window=2, context=0.5)
    assert found.text == " ".join(expected["text"].split())
    assert found.duration == pytest.approx(seconds, abs=1e-3)


def test_command_and_export(both, tmp_path, capsys):
    import soundfile

    folder, pipeline = both
    soundfile.write(tmp_path / "a.wav", tones(2), 16_000, subtype="FLOAT")
    expected = " ".join(pipeline(tones(2))["text"].split())
    cc.convert(folder, tmp_path / "onnx", to="onnx")
    cc.convert(folder, tmp_path / "m.gguf")
    cc.convert(tmp_path / "m.gguf", tmp_path / "again.gguf")
    cc.convert(tmp_path / "again.gguf", tmp_path / "hf", to="safetensors")
    for model in (folder, tmp_path / "onnx", tmp_path / "m.gguf", tmp_path / "hf"):
        assert run(["transcribe", str(model), str(tmp_path / "a.wav")]) == 0
        assert " ".join(capsys.readouterr().out.split()) == expected
    assert run(["transcribe", str(folder), str(tmp_path / "a.wav"), "--beams", "3"]) == 2
    assert "has no option beams" in capsys.readouterr().err


@pytest.mark.parametrize("lower", [False, True])
def test_export_has_a_tokenizer_of_the_library(both, lower, tmp_path):
    """tokenizer.json, which Transformers.js takes, decodes as Wav2Vec2CTCTokenizer does."""
    folder = shutil.copytree(both[0], tmp_path / "hf")
    tokenizer = transformers.Wav2Vec2CTCTokenizer(folder / "vocab.json", do_lower_case=lower)
    tokenizer.save_pretrained(folder)
    cc.convert(folder, tmp_path / "onnx", to="onnx")
    made = tokenizers.Tokenizer.from_file(str(tmp_path / "onnx" / "tokenizer.json"))
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "onnx")
    rng = np.random.default_rng(0)
    for length in range(40):
        ids = rng.choice([0, 0, 4, 4, *range(len(TOKENS))], length).tolist()
        assert made.decode(ids, skip_special_tokens=False) == tokenizer.decode(ids) == again.decode(ids)
    for text in ("HELLO WORLD", "IT'S", "A  B"):
        assert made.encode(text).ids == tokenizer(text).input_ids


def test_models_without_vocabulary_are_refused(both, tmp_path):
    folder = saved(image_model("Wav2Vec2ForCTC", **WAV2VEC2), tmp_path / "hf")
    with pytest.raises(cc.Error, match=r"vocab\.json"):
        cc.models.load(folder).transcribe(tones(1))
    (folder / "vocab.json").write_text('{"a": 0, "b": 0}')
    with pytest.raises(cc.Error, match="different ids"):
        cc.models.load(folder).transcribe(tones(1))


def test_short_sounds(both):
    model = cc.models.load(both[0])
    assert model.transcribe(np.zeros(7, np.float32)).duration == pytest.approx(7 / 16_000)


def test_labels_of_samples(tmp_path):
    model = image_model("Wav2Vec2ForSequenceClassification", **WAV2VEC2, id2label=dict(enumerate("abcde")))
    folder = saved(model, tmp_path / "hf")
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=True)
    extractor.save_pretrained(folder)
    pipeline = transformers.pipeline("audio-classification", model=model, feature_extractor=extractor)
    expected = {each["label"]: each["score"] for each in pipeline(tones(2), top_k=5)}
    found = {each["label"]: each["score"] for each in cc.models.load(folder).predict(tones(2), top=None)}
    assert found == pytest.approx(expected, abs=1e-5)
    vectors = cc.models.load(folder, task="audio-feature-extraction").embed([tones(2), tones(1)])
    assert vectors.shape == (2, WAV2VEC2["hidden_size"])
