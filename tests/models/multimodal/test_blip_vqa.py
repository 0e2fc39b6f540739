"""BLIP's answers to questions against transformers: logits, answers, other formats, and exports in onnxruntime."""

import json

import candle_convert as cc
import numpy as np
import pytest
import torch
import transformers
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.dual_encoders import VISION, clip_tokenizer
from candle_convert.tests.builders.image_checkpoints import images, randomized
from candle_convert.tests.builders.picture_texts import add_files, square, until_end
from candle_convert.tests.oracles.exported_encoder_decoder import encoder_decoder_logits
from candle_convert.tests.oracles.transformers import stored_ties
from PIL import Image

TEXT = {
    "hidden_size": 64, "encoder_hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 7, "sep_token_id": 1,
    "pad_token_id": 1,
}  # fmt: skip
QUESTION = "a photo of a dog"
TOLERANCE = 3e-5


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """The model in transformers and its directory."""
    text = TEXT | {"vocab_size": clip_tokenizer().get_vocab_size()}
    config = transformers.BlipConfig(text_config=text, vision_config=VISION, projection_dim=16)
    model = randomized(transformers.BlipForQuestionAnswering(config)).eval()
    folder = tmp_path_factory.mktemp("blip_vqa")
    model.save_pretrained(folder)
    add_files(folder, square("BlipImageProcessor"), max_length=12)
    return model, folder


def arrays():
    """Two pictures, a padded question, and the first tokens of answers."""
    questions = np.array([[0, 5, 9, 30, 1], [0, 7, 1, 1, 1]])
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    return {
        "pixel_values": images(2, 32, 32),
        "input_ids": questions,
        "attention_mask": mask,
        "decoder_input_ids": np.array([[0, 5, 9], [0, 7, 200]]),
    }


def expected(model):
    """Logits of transformers' modules, of each row without its padding, to which they attend."""
    rows = []
    for pixels, question, mask, answer in zip(*(torch.tensor(array) for array in arrays().values()), strict=True):
        with torch.no_grad():
            seen = model.vision_model(pixels[None]).last_hidden_state
            read = model.text_encoder(input_ids=question[None, mask > 0], encoder_hidden_states=seen).last_hidden_state
            rows.append(model.text_decoder(input_ids=answer[None], encoder_hidden_states=read).logits[0].numpy())
    return np.array(rows)


def compare(found, want):
    assert np.abs(found - want).max() <= TOLERANCE * np.abs(want).max()


def test_logits(case):
    model, folder = case
    compare(cc.models.load(folder, threads=1)(**arrays())["logits"], expected(model))


def test_a_head_that_is_stored_and_tied(case, tmp_path):
    model, folder = case
    reference, names = stored_ties(type(model), folder, tmp_path)
    assert len(names) == len(("weight", "bias"))
    compare(cc.models.load(tmp_path, threads=1)(**arrays())["logits"], expected(reference))


@pytest.mark.parametrize("question", [QUESTION, "a cat"])
def test_answers_as_transformers_generates_them(case, question):
    model, folder = case
    found = cc.models.load(folder, activations="f32")
    pixels = images(2, 32, 32)
    ids = torch.tensor([found.tokenizer.encode(question)] * 2)
    want = model.generate(ids, torch.tensor(pixels), num_beams=1, do_sample=False, max_length=12).tolist()
    for row, answer in zip(want, found.write(pixels, [question] * 2), strict=True):
        assert answer.tokens == until_end(row[1:])


@pytest.mark.parametrize("kind", ["safetensors", "gguf"])
def test_other_formats(case, tmp_path, kind):
    model, folder = case
    target = tmp_path / ("model.gguf" if kind == "gguf" else "again")
    cc.convert(folder, target, to=kind, attachments=kind != "gguf")
    compare(cc.models.load(target, threads=1)(**arrays())["logits"], expected(model))
    if kind == "safetensors":
        again = transformers.BlipForQuestionAnswering.from_pretrained(target)
        compare(expected(again), expected(model))


def test_export_in_onnxruntime(case, tmp_path):
    model, folder = case
    cc.convert(folder, tmp_path, to="onnx")
    compare(encoder_decoder_logits(tmp_path, arrays()), expected(model))


def test_predictions_of_a_directory_and_of_its_export(case, tmp_path, capsys):
    _, folder = case
    cc.convert(folder, tmp_path, to="onnx")
    picture = str(folder / "a.png")
    (want,) = cc.models.load(folder, activations="f32").predict(picture, question=QUESTION)
    assert want["answer"]
    assert cc.models.load(tmp_path, activations="f32").predict(picture, question=QUESTION) == [want]
    assert run(["predict", str(folder), picture, "--question", QUESTION, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["task"] == "visual-question-answering"
    assert printed["results"][0]["found"][0].keys() == {"answer"}


def test_bad_input(case, tmp_path, capsys):
    _, folder = case
    model, picture = cc.models.load(folder), folder / "a.png"
    with pytest.raises(cc.UsageError, match="missing a question"):
        model.predict(picture)
    with pytest.raises(cc.UsageError, match="input_ids is missing"):
        model(images(1, 32, 32), [[0]])
    with pytest.raises(cc.UsageError, match="different numbers of rows"):
        model(images(2, 32, 32), [[0], [0]], input_ids=[[0, 5, 1]])
    assert run(["predict", str(folder), "--question", QUESTION]) == 2
    assert "missing INPUT" in capsys.readouterr().err
    Image.new("RGB", (1, 1)).save(tmp_path / "dot.png")
    assert model.predict(tmp_path / "dot.png", question=QUESTION)[0].keys() == {"answer"}


def test_a_question_to_a_model_without_questions(tmp_path, capsys):
    config = transformers.ViTConfig(**VISION)
    randomized(transformers.ViTForImageClassification(config)).save_pretrained(tmp_path)
    add_files(tmp_path, square("ViTImageProcessor"))
    assert run(["predict", str(tmp_path), str(tmp_path / "a.png"), "--question", QUESTION]) == 2
    assert "image-classification has no option question" in capsys.readouterr().err
