"""Voxtral against transformers: logits behind recordings, features, generated tokens, and other formats."""

import candle_convert as cc
import numpy as np
import pytest
import torch
import transformers
from candle_convert.tests.builders.dual_encoders import clip_tokenizer
from candle_convert.tests.builders.image_checkpoints import randomized
from candle_convert.tests.builders.picture_texts import add_files, square
from candle_convert.tests.oracles.transformers_js import answered, needs_node

AUDIO = {
    "hidden_size": 64, "intermediate_size": 256, "max_source_positions": 48, "num_attention_heads": 4,
    "num_hidden_layers": 2, "num_mel_bins": 80, "head_dim": 16,
}  # fmt: skip
TEXT = {
    "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "head_dim": 12, "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
PLACEHOLDER, BEGIN = "[AUDIO]", "[BEGIN_AUDIO]"
TOLERANCE = 3e-5


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """The model in transformers and its directory."""
    tokenizer = clip_tokenizer()
    tokenizer.add_special_tokens([PLACEHOLDER, BEGIN])
    config = transformers.VoxtralConfig(
        audio_config=AUDIO,
        text_config=TEXT | {"model_type": "llama", "vocab_size": tokenizer.get_vocab_size()},
        audio_token_id=tokenizer.token_to_id(PLACEHOLDER),
    )
    model = randomized(transformers.VoxtralForConditionalGeneration(config)).eval()
    folder = tmp_path_factory.mktemp("voxtral")
    model.save_pretrained(folder)
    add_files(folder, square("ViTImageProcessor"), tokenizer)
    return model, folder


def wave(seconds):
    rate = 16000
    time = np.arange(int(seconds * rate)) / rate
    return (0.4 * np.sin(2 * np.pi * (200 + 300 * time) * time)).astype(np.float32)


def arrays(model):
    """Two windows, and ids with their placeholders."""
    features = np.random.default_rng(0).standard_normal((2, 80, 96)).astype(np.float32)
    return {"input_ids": np.array([[0, 5, *[model.config.audio_token_id] * 24, 9, 30]]), "input_features": features}


def expected(model):
    with torch.no_grad():
        return model(**{name: torch.tensor(array) for name, array in arrays(model).items()}).logits.numpy()


def compare(found, want):
    assert np.abs(found - want).max() <= TOLERANCE * np.abs(want).max()


def test_logits_behind_recordings(case):
    model, folder = case
    compare(cc.models.load(folder, threads=1)(**arrays(model))["logits"], expected(model))


def test_safetensors_round_trip(case, tmp_path):
    model, folder = case
    cc.convert(folder, tmp_path / "again", to="safetensors")
    again = transformers.VoxtralForConditionalGeneration.from_pretrained(tmp_path / "again").eval()
    compare(expected(again), expected(model))
    compare(cc.models.load(tmp_path / "again", threads=1)(**arrays(model))["logits"], expected(model))


@pytest.mark.parametrize("seconds", [0.3, 1.2])
def test_features_and_placeholders(case, seconds):
    model, folder = case
    found = cc.models.load(folder, threads=1).prompted("a cat", [], [wave(seconds)])
    windows = int(np.ceil(seconds / 0.96))
    extractor = transformers.WhisperFeatureExtractor(feature_size=80)
    given = {"pad_to_multiple_of": 15360, "truncation": False, "padding": True, "return_tensors": "np"}
    want = extractor(wave(seconds), sampling_rate=16000, **given)["input_features"]
    want = want.reshape(80, -1, 96).transpose(1, 0, 2)
    assert want.shape == found.arrays["input_features"].shape == (windows, 80, 96)
    assert np.abs(found.arrays["input_features"] - want).max() <= 1e-4
    assert found.ids.count(model.config.audio_token_id) == 12 * windows


def test_generated_tokens(case):
    model, folder = case
    found = cc.models.load(folder, activations="f32")
    prompt = found.prompted("a cat", [], [wave(1.2)])
    ids, features = (torch.tensor(np.array(array)) for array in ([prompt.ids], prompt.arrays["input_features"]))
    with torch.no_grad():
        want = model.generate(
            input_ids=ids, input_features=features, do_sample=False, max_new_tokens=6, eos_token_id=None
        )[0, ids.shape[1] :]
    (made,) = found.generate_batch(["a cat"], audio=[[wave(1.2)]], temperature=0.0, max_tokens=6)
    tokens = want.tolist()
    assert made.tokens[:6] == (tokens[: tokens.index(1) + 1] if 1 in tokens else tokens)


@pytest.mark.parametrize("audio", [[], ["a", "b"]])
def test_bad_input(case, audio):
    _, folder = case
    with pytest.raises(cc.UsageError, match="in the prompt for"):
        cc.models.load(folder).prompted(f"{PLACEHOLDER} a cat", [], audio)
    with pytest.raises(cc.UsageError, match="takes no pictures"):
        cc.models.load(folder).prompted("a cat", ["a.png"], [])


def test_an_exported_folder(case, tmp_path):
    model, folder = case
    cc.convert(folder, tmp_path / "onnx", to="onnx")
    loaded = cc.models.load(tmp_path / "onnx", threads=1, activations="f32")
    compare(loaded(**arrays(model))["logits"], expected(model))
    options = {"audio": [wave(1.2)], "max_tokens": 6, "temperature": 0}
    want = cc.models.load(folder, threads=1, activations="f32").generate("a cat", **options)
    assert loaded.generate("a cat", **options) == want


HEAR = """
  const tensor = (kind, { dims, data }) => new js.Tensor(kind, kind === 'int64' ? data.map(BigInt) : data, dims);
  const model = await js.VoxtralForConditionalGeneration.from_pretrained('model', { dtype: given.dtype });
  const ids = tensor('int64', given.ids);
  const inputs = { input_ids: ids, attention_mask: js.ones(ids.dims), audio_values: tensor('float32', given.features) };
  return { logits: plain((await model(inputs)).logits),
           tokens: plain(await model.generate({ ...inputs, max_new_tokens: 6, do_sample: false })) };
"""


@needs_node
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_transformers_js(case, dtype, tmp_path):
    """The ids and features of transformers, of windows shorter than those of 375 tokens that its processor makes."""
    model, folder = case
    cc.convert(folder, tmp_path / "model", to="onnx", dtypes=({"fp32": "f32", "fp16": "f16"}[dtype],))
    held = {
        name: {"dims": array.shape, "data": array.ravel().tolist()}
        for name, array in zip(("ids", "features"), arrays(model).values(), strict=True)
    }
    found = answered(HEAR, tmp_path, dtype=dtype, **held)
    want = expected(model)
    logits = np.array(found["logits"]["data"]).reshape(found["logits"]["dims"])
    assert np.abs(logits - want).max() <= {"fp32": TOLERANCE, "fp16": 2e-2}[dtype] * np.abs(want).max()
    tensors = {name: torch.tensor(array) for name, array in arrays(model).items()}
    made = model.generate(**tensors, do_sample=False, max_new_tokens=6)[0].tolist()
    assert dtype != "fp32" or found["tokens"]["data"] == made
