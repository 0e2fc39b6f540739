"""verify with pictures: distances of logits after a picture, as of transformers' models."""

import json

import candle_convert as cc
import numpy as np
import pytest
import torch
import transformers
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.vision_language import vision_language_folder
from PIL import Image

PROMPT = "what is this?"


def verified(capsys, *words):
    capsys.readouterr()
    code = run(["verify", *map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_logits_behind_a_picture(tmp_path, capsys):
    source, image = tmp_path / "hf", tmp_path / "hf" / "a.png"
    model, processor = vision_language_folder("smolvlm", source)
    cc.quantize(source, tmp_path / "q.gguf", "Q4_0")
    cc.convert(tmp_path / "q.gguf", tmp_path / "back", to="safetensors", dtype="f32")
    other = transformers.AutoModelForImageTextToText.from_pretrained(tmp_path / "back", dtype=torch.float32).eval()
    inputs = processor(text=f"<image>{PROMPT}", images=[Image.open(image)], return_tensors="pt")
    with torch.no_grad():
        before, after = (each(**inputs).logits[0].double().numpy() for each in (model, other))
    want = np.sum((before - after) ** 2) / np.sum(before**2)
    code, said = verified(capsys, source, tmp_path / "q.gguf", "-p", f"<image>{PROMPT}", "--image", image)
    (found,) = said["outputs"]
    assert code == 0
    assert found["rows"] == len(before)
    assert found["nmse"] == pytest.approx(want, rel=1e-2)
    assert found["same_top"] == pytest.approx(np.mean(before.argmax(-1) == after.argmax(-1)))


def test_models_and_options_without_pictures(tmp_path, capsys):
    vision_language_folder("smolvlm", tmp_path)
    image = tmp_path / "a.png"
    code, said = verified(capsys, tmp_path, tmp_path, "--image", image)
    assert (code, said["error"]["code"]) == (2, "E-OPTION")
    from candle_convert.tests.builders import tiny_llama

    tiny_llama.written(tmp_path / "lm.gguf")
    text = tmp_path / "lm.gguf"
    code, said = verified(capsys, text, text, "-p", PROMPT, "--image", image, "--level", "none")
    assert (code, said["error"]["code"]) == (2, "E-LM-MODALITY")
