"""MusicGen against transformers: logits, greedy codes with and without guidance, other formats, exported graphs."""

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.models.generation.sampling import Sampling
from candle_convert.models.pipelines.audio.synthesis.synthesis_model import CodeRequest, Speech
from candle_convert.runtime.base.errors import UsageError
from candle_convert.tests.builders.changed_config import refused
from candle_convert.tests.builders.musicgen import CODEBOOKS, VOCABULARY, musicgen

TOLERANCE = 2e-5
ROWS = np.random.default_rng(1)
INPUTS = {
    "input_ids": ROWS.integers(2, 60, (2, 7)),
    "attention_mask": np.array([[1] * 7, [1] * 5 + [0] * 2]),
    "decoder_input_ids": ROWS.integers(0, VOCABULARY, (2 * CODEBOOKS, 5)),
}


@pytest.fixture(scope="module")
def model():
    return musicgen()


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("musicgen") / "hf"
    model.save_pretrained(path)
    return path


def expected(model):
    """Logits, and hidden states of the text that are not padding."""
    with torch.no_grad():
        found = model(**{name: torch.tensor(array) for name, array in INPUTS.items()})
    return found.logits.numpy(), found.encoder_last_hidden_state.numpy() * INPUTS["attention_mask"][..., None]


def compare(path, model):
    found = cc.models.load(path, activations="f32")(**INPUTS)
    logits, hidden = expected(model)
    assert np.abs(found["logits"] - logits).max() <= TOLERANCE * np.abs(logits).max()
    found_hidden = found["encoder_last_hidden_state"] * INPUTS["attention_mask"][..., None]
    assert np.abs(found_hidden - hidden).max() <= TOLERANCE * np.abs(hidden).max()


def test_logits(model, folder):
    compare(folder, model)


def test_text_of_the_decoders_width(tmp_path):
    """There is no projection then."""
    model = musicgen(width=24)
    model.save_pretrained(tmp_path)
    compare(tmp_path, model)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_greedy_codes(guidance, channels, tmp_path):
    model = musicgen(channels)
    model.save_pretrained(tmp_path)
    seen = []

    def decode(codes, **options):
        seen.append(codes[0, 0].numpy())
        return type("Decoded", (), {"audio_values": torch.zeros(1, 1, 1)})

    model.audio_encoder.decode = decode
    ids = torch.tensor(INPUTS["input_ids"][:1])
    model.generate(ids, do_sample=False, guidance_scale=guidance, max_new_tokens=20)
    reference = np.stack(seen, 1).reshape(CODEBOOKS, -1) if channels == 2 else seen[0]
    request = CodeRequest(ids[0].tolist(), Speech(), Sampling(temperature=0), guidance, reference.shape[1])
    assert np.array_equal(cc.models.load(tmp_path, activations="f32").codes(request), reference)


@pytest.mark.parametrize("channels", [1, 2])
def test_sound(channels, tmp_path):
    """The greedy sound, from the checkpoint and from a GGUF file of it."""
    model = musicgen(channels)
    model.save_pretrained(tmp_path / "hf")
    cc.convert(tmp_path / "hf", tmp_path / "m.gguf")
    ids = INPUTS["input_ids"][0]
    frames = 16
    positions = frames + 1 + (CODEBOOKS - 1) // channels
    reference = model.generate(torch.tensor(ids[None]), do_sample=False, guidance_scale=1.0, max_length=positions)[
        0
    ].numpy()
    for path in (tmp_path / "hf", tmp_path / "m.gguf"):
        found = cc.models.load(path, activations="f32")
        seconds = frames / found.audio_decoder.frame_rate
        samples, rate = found.speak(ids.tolist(), temperature=0.0, guidance=1.0, max_seconds=seconds)
        expected = np.clip(reference, -1, 1)
        assert rate == 24000
        assert samples.shape == (expected[0] if channels == 1 else expected.T).shape
        assert np.abs(np.atleast_2d(samples.T) - expected).max() <= 1e-4 * np.abs(reference).max()


def test_checkpoint_without_a_codec(folder, tmp_path):
    cc.save_file(
        {
            name: x
            for name, x in cc.load_file(folder / "model.safetensors").items()
            if not name.startswith("audio_encoder")
        },
        tmp_path / "model.safetensors",
    )
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    model = cc.models.load(tmp_path)
    with pytest.raises(UsageError, match="has no audio decoder"):
        model.speak([5, 6], max_seconds=0.01)


def test_gguf_and_back(model, folder, tmp_path):
    cc.convert(folder, tmp_path / "m.gguf")
    compare(tmp_path / "m.gguf", model)
    cc.convert(tmp_path / "m.gguf", tmp_path / "hf", to="safetensors")
    compare(tmp_path / "hf", model)


def test_exported(model, folder, tmp_path):
    cc.convert(folder, tmp_path / "onnx", to="onnx")
    encoder, decoder = (
        onnxruntime.InferenceSession(tmp_path / "onnx" / name)
        for name in ("text_encoder.onnx", "decoder_model_merged.onnx")
    )
    text = {name: INPUTS[name] for name in ("input_ids", "attention_mask")}
    (source,) = encoder.run(["encoder_hidden_states"], text)
    codes = INPUTS["decoder_input_ids"].reshape(2, CODEBOOKS, -1).transpose(0, 2, 1)
    feeds = {
        "input_ids": codes,
        "encoder_attention_mask": INPUTS["attention_mask"],
        "encoder_hidden_states": source,
        "use_cache_branch": np.array([False]),
    }
    feeds |= {
        value.name: np.zeros((2, value.shape[1], 1, value.shape[3]), np.float32)
        for value in decoder.get_inputs()
        if value.name.startswith("past")
    }
    (logits,) = decoder.run(["logits"], feeds)
    wanted, _ = expected(model)
    assert np.abs(logits.transpose(0, 2, 1, 3).reshape(wanted.shape) - wanted).max() <= TOLERANCE * np.abs(wanted).max()


@pytest.mark.parametrize(
    "changes",
    [
        {"num_codebooks": 10**9},
        {"num_codebooks": 5},
        {"hidden_size": 2},
        {"num_hidden_layers": 900},
        {"vocab_size": -1},
    ],
)
def test_hostile_configurations(changes, folder, tmp_path):
    refused(folder, tmp_path, lambda config: config | {"decoder": config["decoder"] | changes})


@pytest.mark.parametrize("stated", [7, {"model_type": "encodec", "upsampling_ratios": [10**9]}])
def test_hostile_codecs(stated, folder, tmp_path):
    assert "audio_encoder" in refused(folder, tmp_path, lambda config: config | {"audio_encoder": stated})
