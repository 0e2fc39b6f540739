"""BLIP's captions against transformers: logits, generated tokens and exported graphs."""

import json

import candle_convert as cc
import numpy as np
import pytest
import torch
import transformers
from candle_convert.tests.builders.dual_encoders import END, START, VISION, clip_tokenizer
from candle_convert.tests.builders.image_checkpoints import images, randomized
from candle_convert.tests.oracles.transformers import stored_ties
from PIL import Image

TEXT = {
    "hidden_size": 48, "encoder_hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 1, "sep_token_id": 1,
    "pad_token_id": 1,
}  # fmt: skip
TOLERANCE = 3e-5


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """The model in transformers and its directory, with a tokenizer, a preprocessor and a picture."""
    tokenizer = clip_tokenizer()
    config = transformers.BlipConfig(
        text_config=TEXT | {"vocab_size": tokenizer.get_vocab_size()}, vision_config=VISION, projection_dim=16
    )
    model = randomized(transformers.BlipForConditionalGeneration(config))
    folder = tmp_path_factory.mktemp("blip")
    model.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 1, "max_length": 12}))
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": START, "eos_token": END, "pad_token": END, "unk_token": END}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names}))
    transformers.BlipImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    pixels = np.random.default_rng(0).integers(0, 256, (40, 70, 3), np.uint8)
    Image.fromarray(pixels).save(folder / "a.png")
    return model.eval(), folder


def test_logits(case):
    model, folder = case
    arrays = {"pixel_values": images(2, 32, 32), "input_ids": np.array([[0, 5, 9, 30], [0, 7, 7, 200]])}
    with torch.no_grad():
        want = model(**{name: torch.tensor(array) for name, array in arrays.items()}).logits.numpy()
    found = cc.models.load(folder, threads=1)(**arrays)["logits"]
    assert np.abs(found - want).max() <= TOLERANCE * np.abs(want).max()


def test_a_head_that_is_stored_and_tied(case, tmp_path):
    model, folder = case
    reference, names = stored_ties(type(model), folder, tmp_path)
    assert len(names) == len(("weight", "bias"))
    arrays = {"pixel_values": images(2, 32, 32), "input_ids": np.array([[0, 5, 9, 30], [0, 7, 7, 200]])}
    with torch.no_grad():
        want = reference(**{name: torch.tensor(array) for name, array in arrays.items()}).logits.numpy()
    found = cc.models.load(tmp_path, threads=1)(**arrays)["logits"]
    assert np.abs(found - want).max() <= TOLERANCE * np.abs(want).max()


def test_tokens_as_transformers_generates_them(case):
    model, folder = case
    pixels = images(2, 32, 32)
    want = model.generate(torch.tensor(pixels), num_beams=1, do_sample=False, max_length=12).tolist()
    for row, made in zip(want, cc.models.load(folder, activations="f32").write(pixels), strict=True):
        tokens = row[1:]
        assert made.tokens == (tokens[: tokens.index(1) + 1] if 1 in tokens else tokens)


def test_predictions_of_a_directory_and_of_its_export(case, tmp_path):
    _, folder = case
    cc.convert(folder, tmp_path, to="onnx")
    picture = folder / "a.png"
    want = cc.models.load(folder, activations="f32").predict(picture)
    assert cc.models.load(tmp_path, activations="f32").predict(picture) == want
    assert want[0]["generated_text"]
