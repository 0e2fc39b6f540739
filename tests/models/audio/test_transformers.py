"""Audio models against transformers: their outputs, through GGUF and back, and exported to ONNX."""

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.tests.builders.audio_networks import AST, LARGE, WAV2VEC2
from candle_convert.tests.builders.image_checkpoints import image_model, saved

CASES = {
    "ast": ("ASTForAudioClassification", AST, (2, 40, 32)),
    "ast-layers": ("ASTModel", {**AST, "qkv_bias": False, "hidden_act": "relu"}, (1, 40, 32)),
    "wav2vec2": ("Wav2Vec2ForCTC", WAV2VEC2, (2, 1600)),
    "wav2vec2-large": ("Wav2Vec2ForCTC", {**LARGE, "num_conv_pos_embeddings": 7, "adapter_attn_dim": 6}, (1, 1234)),
    "wav2vec2-classes": ("Wav2Vec2ForSequenceClassification", LARGE, (2, 1600)),
    "wav2vec2-sum": ("Wav2Vec2ForSequenceClassification", {**WAV2VEC2, "use_weighted_layer_sum": True}, (1, 1600)),
    "wav2vec2-layers": ("Wav2Vec2Model", {**LARGE, "do_stable_layer_norm": False}, (1, 1600)),
    "hubert": ("HubertForCTC", WAV2VEC2, (2, 1600)),
    "hubert-norms": ("HubertModel", {**LARGE, "conv_pos_batch_norm": True, "feat_proj_layer_norm": False}, (1, 900)),
    "wavlm": ("WavLMForCTC", {**WAV2VEC2, "num_buckets": 32, "max_bucket_distance": 40}, (2, 4000)),
    "wavlm-large": ("WavLMForSequenceClassification", LARGE, (1, 1600)),
    "unispeech": ("UniSpeechForCTC", LARGE, (1, 1600)),
    "unispeech-sat": ("UniSpeechSatForCTC", WAV2VEC2, (1, 1600)),
}
"""By name: the class, its configuration, and the shape of ``input_values``."""
TRAINED_ONLY = ("masked_spec_embed", "num_batches_tracked")
"""What only training uses: it is not converted."""
TOLERANCE = 3e-5


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    kind, settings, shape = CASES[request.param]
    model = image_model(kind, **settings)
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return model, saved(model, tmp_path_factory.mktemp(request.param) / "hf"), values


def _expected(model, values):
    with torch.no_grad():
        found = model(input_values=torch.from_numpy(values))
    return {
        name: value.numpy() for name, value in found.items() if torch.is_tensor(value) and name != "extract_features"
    }


def _compare(found, expected):
    for name, value in expected.items():
        assert np.abs(found[name] - value).max() <= TOLERANCE * np.abs(value).max(), name


def test_outputs(case):
    model, folder, values = case
    _compare(cc.models.load(folder)(input_values=values), _expected(model, values))


@pytest.mark.sampled(3)
def test_gguf_and_back(case, tmp_path):
    model, folder, values = case
    cc.convert(folder, tmp_path / "m.gguf")
    cc.convert(tmp_path / "m.gguf", tmp_path / "hf", to="safetensors")
    expected = _expected(model, values)
    _compare(cc.models.load(tmp_path / "m.gguf")(input_values=values), expected)
    again, report = type(model).from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not report["unexpected_keys"]
    assert not [name for name in report["missing_keys"] if not name.endswith(TRAINED_ONLY)]
    _compare(_expected(again.eval(), values), expected)


@pytest.mark.sampled(3)
def test_export(case, tmp_path):
    model, folder, values = case
    cc.convert(folder, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    names = [output.name for output in session.get_outputs()]
    expected = _expected(model, values)
    _compare(dict(zip(names, session.run(None, {"input_values": values}), strict=True)), expected)
    again = cc.models.load(tmp_path / "m.onnx")
    assert again.task == cc.models.load(folder).task
    _compare(again(input_values=values), expected)


def test_other_arrays_are_refused(case):
    model = cc.models.load(case[1])
    with pytest.raises(cc.Error, match="input_values has another shape"):
        model(input_values=np.zeros((1, 2, 3, 4), np.float32))
    with pytest.raises(cc.Error, match="not the inputs of the model"):
        model(pixel_values=np.zeros((1, 40, 32), np.float32))


def test_positions_that_do_not_fit_are_refused(tmp_path):
    folder = saved(image_model("ASTModel", **AST), tmp_path / "hf")
    config = (folder / "config.json").read_text().replace('"max_length": 40', '"max_length": 64')
    (folder / "config.json").write_text(config)
    with pytest.raises(cc.Error, match="position embeddings do not fit"):
        cc.models.load(folder)
