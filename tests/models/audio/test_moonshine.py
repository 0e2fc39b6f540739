"""Moonshine against transformers: outputs, texts, exports, GGUF and back, and long recordings in parts."""

import json

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.models.preprocess.audio.utterances import utterances
from candle_convert.tests.builders.speech_checkpoints import bytes_tokenizer, tones
from candle_convert.tests.oracles.transformers import Case, difference, made

CLASS = "MoonshineForConditionalGeneration"
CONFIG = {
    "vocab_size": 258, "hidden_size": 48, "intermediate_size": 80, "encoder_num_hidden_layers": 2,
    "decoder_num_hidden_layers": 3, "encoder_num_attention_heads": 4, "decoder_num_attention_heads": 4,
    "max_position_embeddings": 64, "pad_token_id": 257, "bos_token_id": 256, "eos_token_id": 257,
    "decoder_start_token_id": 256, "partial_rotary_factor": 0.9,
}  # fmt: skip
CASE = Case("moonshine", CLASS, {"architectures": [CLASS], "model_type": "moonshine"}, CONFIG)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("moonshine")
    reference = made(CASE, 3, folder)
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
            assert difference(found[name], array) <= CASE.tolerance, (path, name)
    again, report = type(reference).from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not report["unexpected_keys"]
    assert not report["missing_keys"]
    assert difference(expected(again.eval(), *arrays.values())["logits"], want["logits"]) <= CASE.tolerance


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
