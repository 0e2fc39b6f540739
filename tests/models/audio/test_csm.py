"""CSM against transformers: both decoders, greedy codes, other formats, exported graphs."""

import math

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import soundfile
import torch
from candle_convert.convert.cli.main import run
from candle_convert.models.generation.sampling import Sampling
from candle_convert.models.pipelines.audio.synthesis.synthesis_model import CodeRequest, Speech
from candle_convert.tests.builders.audio_codecs import fill_codebooks
from candle_convert.tests.builders.changed_config import refused
from candle_convert.tests.builders.trained_tokenizers import byte_bpe
from candle_convert.tests.oracles.transformers import transformers
from transformers import PreTrainedTokenizerFast

TOLERANCE = 2e-5
CODEBOOKS, VOCABULARY, TEXT = 4, 35, 60
ROPE = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 0.125, "high_freq_factor": 0.5}
BACKBONE = {
    "vocab_size": VOCABULARY, "num_codebooks": CODEBOOKS, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "text_vocab_size": TEXT,
    "rope_parameters": {**ROPE, "rope_theta": 500000.0, "original_max_position_embeddings": 16},
    "codebook_pad_token_id": VOCABULARY - 1, "audio_token_id": 8, "audio_eos_token_id": 7, "bos_token_id": 1,
    "pad_token_id": 2,
}  # fmt: skip
DEPTH = {
    "vocab_size": VOCABULARY, "num_codebooks": CODEBOOKS, "backbone_hidden_size": 32, "hidden_size": 24,
    "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
    "rope_parameters": {**ROPE, "rope_theta": 500000.0, "original_max_position_embeddings": 8},
}  # fmt: skip
CODEC = {
    "model_type": "mimi", "codebook_size": 64, "num_quantizers": CODEBOOKS, "hidden_size": 16, "num_filters": 2,
    "codebook_dim": 8, "vector_quantization_hidden_dimension": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 16, "upsample_groups": 16,
    "upsampling_ratios": [4, 2],
}  # fmt: skip
RANDOM = np.random.default_rng(3)
WORDS, FRAMES = RANDOM.integers(9, TEXT, (2, 7)), RANDOM.integers(1, 30, (2, 6, CODEBOOKS))
CODES, STATE = RANDOM.integers(1, 30, (2, CODEBOOKS)), RANDOM.standard_normal((2, 32)).astype(np.float32)


def csm(*, tied=True, words=TEXT):
    """A model with random weights."""
    kinds = transformers()
    torch.manual_seed(0)
    config = kinds.CsmConfig(
        **BACKBONE | {"text_vocab_size": words},
        depth_decoder_config=DEPTH,
        codec_config=CODEC,
        tie_codebooks_embeddings=tied,
    )
    model = kinds.CsmForConditionalGeneration(config).float().eval()
    for part in (model.backbone_model, model.depth_decoder, model.lm_head, model.embed_text_tokens):
        for parameter in part.parameters():
            if parameter.ndim > 1:
                parameter.data = torch.randn(parameter.shape) / parameter.shape[1 if parameter.ndim == 3 else -1] ** 0.5
    model.tie_weights()
    fill_codebooks(model.codec_model)
    return model


@pytest.fixture(scope="module")
def model():
    return csm()


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("csm") / "hf"
    model.save_pretrained(path)
    return path


def close(found, expected):
    expected = expected.numpy()
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()


@torch.no_grad()
def compare(path, model):
    ours = cc.models.load(path, activations="f32")
    hidden = model.backbone_model(inputs_embeds=model.embed_text_tokens(torch.tensor(WORDS))).last_hidden_state
    close(ours(WORDS)["last_hidden_state"], hidden)
    hidden = model.backbone_model(input_ids=torch.tensor(FRAMES)).last_hidden_state
    close(ours(FRAMES)["logits"], model.lm_head(hidden))
    depth = model.depth_decoder(torch.tensor(CODES), backbone_last_hidden_state=torch.tensor(STATE))
    close(ours(CODES, backbone_last_hidden_state=STATE)["logits"], depth.logits)


def test_logits(model, folder):
    compare(folder, model)


def test_embeddings_of_both_decoders(tmp_path):
    model = csm(tied=False)
    model.save_pretrained(tmp_path)
    compare(tmp_path, model)


def test_greedy_codes(model, folder):
    ours = cc.models.load(folder, activations="f32")
    for words in WORDS:
        with torch.no_grad():
            reference = model.generate(
                torch.tensor(words[None]), do_sample=False, depth_decoder_do_sample=False, max_new_tokens=9
            )[0].numpy()
        request = CodeRequest(words.tolist(), Speech(), Sampling(temperature=0), 1.0, 9)
        assert np.array_equal(ours.codes(request).T, reference)


@torch.no_grad()
def sound_of(model, words, frames):
    """The greedy sound of transformers."""
    ids = torch.tensor([words])
    greedy = {"do_sample": False, "depth_decoder_do_sample": False, "max_new_tokens": frames}
    (found,) = model.generate(ids, attention_mask=torch.ones_like(ids), output_audio=True, **greedy)
    return found.numpy()


def test_sound(model, folder, tmp_path):
    """From the checkpoint, whose codec is under names of its own, and from a GGUF file of it."""
    cc.convert(folder, tmp_path / "m.gguf")
    expected = np.clip(sound_of(model, WORDS[0].tolist(), 9), -1, 1)
    for path in (folder, tmp_path / "m.gguf"):
        ours = cc.models.load(path, activations="f32")
        seconds = 9 / ours.audio_decoder.frame_rate
        samples, rate = ours.speak(WORDS[0].tolist(), temperature=0.0, max_seconds=seconds)
        assert rate == 24000
        assert samples.shape == expected.shape
        assert np.abs(samples - expected).max() <= 1e-4 * np.abs(expected).max()


def test_speakers_of_the_command(tmp_path, capsys):
    """A text begins with the number of its speaker, between the tokens of its begin and end."""
    tokenizer = byte_bpe((), 300)
    model = csm(words=tokenizer.get_vocab_size())
    model.save_pretrained(tmp_path)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(tmp_path)
    out = tmp_path / "a.wav"
    words = ["speak", str(tmp_path), "-p", "Hello", "--speaker", "7", "--temperature", "0", "--max-seconds", "0.01"]
    assert run([*words, "-o", str(out)]) == 0
    found, rate = soundfile.read(out, dtype="float32")
    expected = sound_of(model, fast.encode("<s>[7]Hello</s>"), math.ceil(0.01 * 24000 / 16))
    assert rate == 24000
    assert np.abs(found - np.clip(expected, -1, 1)).max() <= 2**-13
    capsys.readouterr()
    assert run([*words, "--speaker", "me.wav", "-o", str(tmp_path / "b.wav")]) == 2
    assert "not a speaker of CSM" in capsys.readouterr().err


def test_gguf_and_back(model, folder, tmp_path):
    cc.convert(folder, tmp_path / "m.gguf")
    compare(tmp_path / "m.gguf", model)
    cc.convert(tmp_path / "m.gguf", tmp_path / "hf", to="safetensors")
    compare(tmp_path / "hf", model)


def test_exported(model, folder, tmp_path):
    cc.convert(folder, tmp_path / "onnx", to="onnx")
    graphs = {
        name: onnxruntime.InferenceSession(tmp_path / "onnx" / f"{name}.onnx")
        for name in ("backbone", "lm_head", "depth_decoder")
    }
    words = np.concatenate([FRAMES, np.full((2, 6, 1), -1)], 2)

    def run(name, ids, **others):
        length = ids.shape[1]
        feeds = {"attention_mask": np.ones((2, length), np.int64), "position_ids": np.arange(length)[None].repeat(2, 0)}
        states = {
            value.name: np.zeros((2, value.shape[1], 0, value.shape[3]), np.float32)
            for value in graphs[name].get_inputs()
            if value.name.startswith("past")
        }
        known = {value.name for value in graphs[name].get_inputs()}
        given = {"input_ids": ids, **feeds, **states, **others}
        return graphs[name].run(None, {key: array for key, array in given.items() if key in known})[0]

    with torch.no_grad():
        hidden = model.backbone_model(input_ids=torch.tensor(FRAMES)).last_hidden_state
        close(run("backbone", words), hidden)
        (logits,) = graphs["lm_head"].run(None, {"last_hidden_state": hidden[:, -1].numpy()})
        close(logits, model.lm_head(hidden[:, -1]))
        depth = model.depth_decoder(torch.tensor(CODES), backbone_last_hidden_state=torch.tensor(STATE))
        close(run("depth_decoder", CODES, backbone_last_hidden_state=STATE)[:, 1:], depth.logits)


HOSTILE = (
    {"num_codebooks": 1},
    {"num_codebooks": 5},
    {"vocab_size": 36},
    {"depth_decoder_config": {**DEPTH, "num_codebooks": 10**9}},
    {"depth_decoder_config": {**DEPTH, "backbone_hidden_size": 31}},
    {"depth_decoder_config": 7},
)


@pytest.mark.parametrize("changes", HOSTILE)
def test_hostile_configurations(changes, folder, tmp_path):
    refused(folder, tmp_path, lambda config: config | changes)


@pytest.mark.parametrize("stated", [7, {"model_type": "mimi", "upsampling_ratios": [10**9]}])
def test_hostile_codecs(stated, folder, tmp_path):
    assert "codec_config" in refused(folder, tmp_path, lambda config: config | {"codec_config": stated})
