"""Moonshine against transformers: outputs, texts, exports, GGUF and back, and long recordings in parts."""

import json

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.models.preprocess.audio.utterances import utterances
from candle_convert.tests.builders.speech_checkpoints import MOONSHINE, bytes_tokenizer, tones
from candle_convert.tests.oracles.transformers import difference, made


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("moonshine")
    reference = made(MOONSHINE, 3, folder)
    bytes_tokenizer(["<s>", "</s>"]).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    return folder, reference


def expected(reference, samples, ids):
    with torch.no_grad():
        found = reference(input_values=torch.tensor(samples), decoder_input_ids=torch.tensor(ids), use_cache=False)
    return {name: found[name].numpy() for name in ("logits", "encoder_last_hidden_state")}


def test_outputs(both, tmp_path):
    folder, reference = both
    arrays = {"input_values": np.stack([tones(0.5), tones(0.5, 1)]), "decoder_input_ids": [[256, 3, 9], [256, 7, 8]]}
    want = expected(reference, *arrays.values())
    cc.convert(folder, tmp_path / "m.gguf")
    cc.convert(tmp_path / "m.gguf", tmp_path / "hf", to="safetensors")
    cc.convert(folder, tmp_path / "onnx", to="onnx", dtype="f32")
    for path in (folder, tmp_path / "m.gguf", tmp_path / "hf", tmp_path / "onnx"):
        found = cc.models.load(path)(**arrays)
        for name, array in want.items():
            assert difference(found[name], array) <= MOONSHINE.tolerance, (path, name)
    again, report = type(reference).from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not report["unexpected_keys"]
    assert not report["missing_keys"]
    assert difference(expected(again.eval(), *arrays.values())["logits"], want["logits"]) <= MOONSHINE.tolerance


@pytest.mark.parametrize("beams", [1, 3])
def test_texts(both, tmp_path, beams):
    folder, reference = both
    model, samples = cc.models.load(folder), tones(1.5, seed=4)
    options = {"num_beams": beams, "early_stopping": True} if beams > 1 else {}
    with torch.no_grad():
        given = torch.from_numpy(samples)[None]
        ids = reference.generate(input_values=given, max_length=11, do_sample=False, **options)[0, 1:]
    found = model.transcribe(samples, beams=beams)
    assert found.segments[0].tokens == [token for token in ids.tolist() if token != 257]
    assert (found.segments[0].start, found.segments[0].end) == (0.0, 1.5)
    cc.convert(folder, tmp_path / "onnx", to="onnx", dtype="f32")
    assert cc.models.load(tmp_path / "onnx").transcribe(samples, beams=beams).text == found.text


def test_silence_and_short_sounds(both):
    model = cc.models.load(both[0])
    assert model.transcribe(np.zeros(16_000, np.float32)).text == ""
    assert model.transcribe(tones(0.01)).duration == pytest.approx(0.01)
    with pytest.raises(cc.Error, match="beams is out of range"):
        model.transcribe(tones(1), beams=0)
    with pytest.raises(cc.Error, match="not samples"):
        model(np.zeros((1, 20), np.float32), [[256]])


def test_long_recordings_end_where_it_is_quiet():
    rng = np.random.default_rng(0)
    samples = rng.standard_normal(70_000).astype(np.float32)
    for start in (9_000, 17_500):
        samples[start : start + 200] *= 0.01
    found = list(utterances([samples[:5_000], samples[5_000:]], 1_000, 10))
    np.testing.assert_array_equal(np.concatenate([part.samples for part in found]), samples)
    assert [part.start for part in found] == np.cumsum([0, *(len(part.samples) for part in found[:-1])]).tolist()
    assert 9_000 < found[1].start < 9_200
    assert 17_500 < found[2].start < 17_700
    assert all(len(part.samples) <= 10_000 for part in found)


def test_streams_end_parts_at_pauses():
    """Bursts of a second, a second of quiet behind each: a part comes as soon as its pause has."""
    rng, bursts, arrived = np.random.default_rng(1), 3, 0
    loud = rng.standard_normal((bursts, 1_000)).astype(np.float32)
    samples = np.concatenate([loud, 1e-3 * loud], 1).reshape(-1)

    def blocks():
        nonlocal arrived
        for block in np.split(samples, len(samples) // 100):
            arrived += 1
            yield block

    found = [(part, arrived) for part in utterances(blocks(), 1_000, 10, 0.6)]
    np.testing.assert_array_equal(np.concatenate([part.samples for part, _ in found]), samples)
    assert [0.1 * count for _, count in found] == pytest.approx([1.6, 3.6, 5.6, 6.0], abs=0.15)


def test_streams_and_speech_alone(both):
    import io

    import soundfile

    model, parts, file = cc.models.load(both[0]), [tones(1, seed) for seed in (1, 2)], io.BytesIO()
    gap = np.full(16_000, 1e-5, np.float32)
    soundfile.write(file, np.concatenate([parts[0], gap, parts[1]]), 16_000, subtype="FLOAT", format="WAV")
    file.seek(0)
    found = model.transcribe(file)
    assert [round(segment.start) for segment in found.segments] == [0, 1]
    assert [segment.text for segment in found.segments] == [
        model.transcribe(each).segments[0].text
        for each in (np.concatenate([parts[0], gap[:4_800]]), np.concatenate([gap[4_800:], parts[1]]))
    ]
