"""Answers that vision-language models predict of pictures, against transformers."""

import json

import candle_convert as cc
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.console.table import aligned
from candle_convert.tests.builders.patch_models import patch_folder
from candle_convert.tests.builders.vision_language import generated, vision_language_folder
from PIL import Image

QUESTION = "what is this?"


def answered(model, processor, folder, text, letter, count, **options):
    inputs = processor(text=text, images=[Image.open(folder / f"{letter}.png")], **options)
    return processor.tokenizer.decode(generated(model, inputs, count), skip_special_tokens=True).strip()


def test_a_question_by_the_chat_template(tmp_path, capsys):
    model, processor = vision_language_folder("smolvlm", tmp_path)
    message = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": QUESTION}]}
    text = processor.tokenizer.apply_chat_template([message], tokenize=False, add_generation_prompt=True)
    text = text.removeprefix(processor.tokenizer.bos_token)
    want = [answered(model, processor, tmp_path, text, letter, 12, return_tensors="pt") for letter in "ab"]
    loaded = cc.models.load(tmp_path, threads=1, activations="f32")
    assert (loaded.takes, loaded.verbs) == ("pictures", ("generate", "predict"))
    pictures = [str(tmp_path / f"{letter}.png") for letter in "ab"]
    found = loaded.predict(pictures, question=QUESTION, max_new_tokens=12)
    assert found == [[{"generated_text": answer}] for answer in want]
    assert loaded.predict(pictures[1], question=QUESTION, max_new_tokens=12) == found[1]
    with pytest.raises(cc.UsageError, match="missing a question"):
        loaded.predict(pictures[0])
    capsys.readouterr()
    assert run(["predict", str(tmp_path), pictures[0], __file__, "--question", QUESTION, "--json"]) == 3
    shown = json.loads(capsys.readouterr().out)
    assert [each["input"] for each in shown["results"]] == pictures[:1]
    assert [each["input"] for each in shown["errors"]] == [__file__]


def test_a_family_that_reads_text_has_a_question_of_its_own(tmp_path, capsys):
    model, processor = patch_folder("paddleocr_vl", tmp_path)
    text = "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>OCR:"
    want = answered(model, processor, tmp_path, text, "a", 16)
    loaded = cc.models.load(tmp_path, threads=1, activations="f32")
    assert loaded.predict(str(tmp_path / "a.png"), max_new_tokens=16) == [{"generated_text": want}]
    assert run(["predict", str(tmp_path), str(tmp_path / "a.png")]) == 0
    assert capsys.readouterr().out.startswith("generated_text\n")


def test_long_answers_are_shown_whole(monkeypatch):
    text = "word " * 30
    assert " ".join(aligned(["generated_text"], [[text]], prose=[0], width=40)).split() == text.split()
