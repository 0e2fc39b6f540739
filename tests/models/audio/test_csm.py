"""CSM against transformers: both decoders, greedy codes, other formats, exported graphs."""

import json

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.models.generation.sampling import Sampling
from candle_convert.models.pipelines.audio.synthesis.synthesis_model import CodeRequest, Speech
from candle_convert.runtime.base.errors import FormatError
from candle_convert.tests.oracles.transformers import transformers

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
    "model_type": "mimi", "codebook_size": 32, "num_quantizers": CODEBOOKS, "hidden_size": 16, "num_filters": 2,
    "codebook_dim": 8, "vector_quantization_hidden_dimension": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 16, "upsample_groups": 16,
    "upsampling_ratios": [4, 2],
}  # fmt: skip
RANDOM = np.random.default_rng(3)
WORDS, FRAMES = RANDOM.integers(9, TEXT, (2, 7)), RANDOM.integers(1, 30, (2, 6, CODEBOOKS))
CODES, STATE = RANDOM.integers(1, 30, (2, CODEBOOKS)), RANDOM.standard_normal((2, 32)).astype(np.float32)


def csm(*, tied=True):
    """A model with random weights."""
    kinds = transformers()
    torch.manual_seed(0)
    config = kinds.CsmConfig(**BACKBONE, depth_decoder_config=DEPTH, codec_config=CODEC, tie_codebooks_embeddings=tied)
    model = kinds.CsmForConditionalGeneration(config).float().eval()
    for part in (model.backbone_model, model.depth_decoder, model.lm_head, model.embed_text_tokens):
        for parameter in part.parameters():
            if parameter.ndim > 1:
                parameter.data = torch.randn(parameter.shape) / parameter.shape[1 if parameter.ndim == 3 else -1] ** 0.5
    model.tie_weights()
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
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text()) | changes
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(FormatError) as caught:
        cc.models.load(tmp_path)
    assert "\n" not in str(caught.value)
