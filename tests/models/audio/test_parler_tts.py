"""Parler-TTS: logits against MusicGen's decoder of transformers, which is the same but for the prompt in front; the
sound against its DAC, whose weights have the names of DAC's authors in the file."""

import json

import candle_convert as cc
import numpy as np
import pytest
import soundfile
import torch
from candle_convert.convert.cli.main import run
from candle_convert.models.generation.sampling import Sampling
from candle_convert.models.pipelines.audio.synthesis.synthesis_model import CodeRequest, Speech
from candle_convert.tests.builders.audio_codecs import codec
from candle_convert.tests.builders.image_checkpoints import saved
from candle_convert.tests.builders.musicgen import CODEBOOKS, VOCABULARY, musicgen
from candle_convert.tests.builders.trained_tokenizers import byte_bpe

TOLERANCE = 2e-5
DAC = {
    "encoder_hidden_size": 2,
    "decoder_hidden_size": 32,
    "n_codebooks": CODEBOOKS,
    "codebook_size": 32,
    "codebook_dim": 4,
}
RANDOM = np.random.default_rng(2)
DESCRIPTION, TEXT = RANDOM.integers(2, 60, (2, 7)), RANDOM.integers(2, 60, (2, 5))
DESCRIBED = np.array([[1] * 7, [1] * 5 + [0] * 2])
CODES = RANDOM.integers(0, VOCABULARY, (2 * CODEBOOKS, 4))


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """The decoder, the embedding of prompts and the codec, and a directory of the whole."""
    tokenizer = byte_bpe((), 300)
    words = tokenizer.get_vocab_size()
    model, audio = musicgen(words=words), codec("Dac", **DAC)
    torch.manual_seed(4)
    prompts = torch.randn(words, 32) / 4
    folder = tmp_path_factory.mktemp("parler")
    saved(audio, folder / "dac")
    cc.convert(folder / "dac", folder / "dac.safetensors", names="original")
    whole = folder / "whole"
    whole.mkdir()
    state = {name: x.numpy() for name, x in model.state_dict().items() if not name.startswith("audio_encoder")}
    state["decoder.model.decoder.embed_positions.weights"] = model.decoder.model.decoder.embed_positions.weights[
        :64
    ].numpy()
    state["embed_prompts.weight"] = prompts.numpy()
    state |= {f"audio_encoder.model.{name}": x for name, x in cc.load_file(folder / "dac.safetensors").items()}
    cc.save_file({name: np.ascontiguousarray(x) for name, x in state.items()}, whole / "model.safetensors")
    decoder = model.config.decoder.to_dict() | {"model_type": "parler_tts_decoder", "eos_token_id": VOCABULARY - 2}
    config = {
        "model_type": "parler_tts", "architectures": ["ParlerTTSForConditionalGeneration"], "vocab_size": words,
        "decoder": decoder, "text_encoder": model.config.text_encoder.to_dict(),
        "audio_encoder": {
            "model_type": "dac", "sampling_rate": 16_000, "codebook_size": 32, "num_codebooks": CODEBOOKS,
        },
    }  # fmt: skip
    (whole / "config.json").write_text(json.dumps(config))
    tokenizer.save(str(whole / "tokenizer.json"))
    return model, prompts, audio, whole


@torch.no_grad()
def expected(model, prompts):
    """Logits [batch x codebooks, prompt + length, vocabulary]."""
    hidden = model.text_encoder(torch.tensor(DESCRIPTION), torch.tensor(DESCRIBED)).last_hidden_state
    hidden = model.enc_to_dec_proj(hidden) if hasattr(model, "enc_to_dec_proj") else hidden
    mask = torch.tensor(DESCRIBED)
    decoder = model.decoder.model.decoder
    codes = torch.tensor(CODES).reshape(2, CODEBOOKS, -1)
    frames = sum(decoder.embed_tokens[i](codes[:, i]) for i in range(CODEBOOKS))
    embedded = torch.cat([prompts[torch.tensor(TEXT)], frames], 1)
    places = decoder.embed_positions.weights[: embedded.shape[1]]
    embedded = embedded + places - places[0]  # given embeddings, MusicGen adds the first position's to all of them
    found = decoder(
        inputs_embeds=embedded, encoder_hidden_states=hidden * mask[..., None], encoder_attention_mask=mask
    ).last_hidden_state
    return torch.stack([head(found) for head in model.decoder.lm_heads], 1).flatten(0, 1).numpy()


def test_logits(parts, tmp_path):
    model, prompts, _, folder = parts
    reference = expected(model, prompts)
    cc.convert(folder, tmp_path / "m.gguf")
    for path in (folder, tmp_path / "m.gguf"):
        found = cc.models.load(path, activations="f32")(
            DESCRIPTION, DESCRIBED, decoder_input_ids=CODES, prompt_input_ids=TEXT
        )["logits"]
        assert found.shape == reference.shape
        assert np.abs(found - reference).max() <= TOLERANCE * np.abs(reference).max()


def test_sound(parts, tmp_path):
    """The command's sound is what transformers' DAC makes of the codes."""
    _, _, audio, folder = parts
    words = ["-p", "Hello there", "--describe", "A low voice", "--seed", "5", "--max-seconds", "0.3"]
    assert run(["speak", str(folder), *words, "-o", str(tmp_path / "a.wav")]) == 0
    samples, rate = soundfile.read(tmp_path / "a.wav", dtype="float32")
    ours = cc.models.load(folder)
    request = ours.requested("Hello there", 5, {"description": "A low voice", "max_seconds": 0.3})
    codes = ours.codes(request)
    assert codes.shape[0] == CODEBOOKS
    assert codes.shape[1]
    with torch.no_grad():
        sound = audio.decode(audio_codes=torch.tensor(codes[None])).audio_values.numpy()[0]
    assert rate == 16_000
    assert np.abs(samples - np.clip(sound, -1, 1)).max() <= 2**-13


def test_greedy_codes_repeat(parts):
    """The most probable codes do not depend on the seed, and follow the description."""
    ours = cc.models.load(parts[3], activations="f32")

    def codes(description):
        return ours.codes(CodeRequest("Hello", Speech(description=description), Sampling(temperature=0), 1.0, 8))

    assert np.array_equal(codes("A low voice"), codes("A low voice"))
    assert not np.array_equal(codes("A low voice"), codes("Loud, fast and far away"))
