"""Finite weights whose products float32 does not hold: a model that is called refuses NaN and infinity."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert import models
from candle_convert.tests.builders.audio_codecs import CASES, codec, sound
from candle_convert.tests.builders.encoder_decoder_cases import BARTS, inputs
from candle_convert.tests.builders.image_checkpoints import saved
from candle_convert.tests.builders.vision_language import vision_language_folder
from candle_convert.tests.oracles.transformers import made
from safetensors.torch import load_file, save_file

LARGEST = 3e38


def overflowed(folder, part):
    """Make the weights of a part of a checkpoint as large as float32 holds."""
    file = folder / "model.safetensors"
    weights = load_file(file)
    named = [name for name in weights if part in name]
    assert named
    for name in named:
        weights[name] = torch.sign(weights[name]) * LARGEST
    save_file(weights, file, metadata={"format": "pt"})


def refused(call):
    with pytest.raises(cc.UnsupportedError, match="E-MODEL-NAN"):
        call()


def test_logits_of_encoder_decoders(tmp_path):
    reference, arrays = made(BARTS[0], 0, tmp_path), inputs(BARTS[0], 0)["single"]
    overflowed(tmp_path, "decoder.layers.0.fc2.weight")
    with torch.no_grad():
        again = type(reference).from_pretrained(tmp_path).eval()
        assert not again(**{name: torch.tensor(ids) for name, ids in arrays.items()}).logits.isfinite().all()
    model = models.load(tmp_path, threads=1)
    refused(lambda: model(**arrays))


def test_logits_of_models_that_see(tmp_path):
    reference, _ = vision_language_folder("llava", tmp_path)
    overflowed(tmp_path, "lm_head.weight")
    ids = np.arange(60, 66)[None]
    with torch.no_grad():
        again = type(reference).from_pretrained(tmp_path).eval()
        assert not again(input_ids=torch.tensor(ids)).logits.isfinite().all()
    model = models.load(tmp_path, threads=1)
    refused(lambda: model.logits(ids))
    refused(lambda: model(ids))


@pytest.mark.parametrize("name", ["encodec", "dac", "mimi"])
def test_samples_of_codecs(name, tmp_path):
    kind, settings = CASES[name]
    reference = codec(kind, **settings)
    saved(reference, tmp_path)
    codes = models.load(tmp_path, threads=1).encode(sound(1, 1, 4000)).codes
    overflowed(tmp_path, "decoder.")
    model = models.load(tmp_path, threads=1)
    refused(lambda: model.decode(codes))
