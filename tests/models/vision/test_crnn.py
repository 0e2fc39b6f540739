"""CRNN against torch: logits from a pickle, through GGUF, and exported; and the text that they spell."""

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.models.pipelines.image.text_recognition import LOGITS, decoded
from candle_convert.tests.builders.crnn import CHARACTERS, crnn
from PIL import Image


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    path = tmp_path_factory.mktemp("crnn") / "model.pth"
    return crnn(path), path


def lines(batch, width):
    """Pictures of lines of text, in -1 to 1."""
    return np.random.default_rng(width).uniform(-1, 1, (batch, 1, 64, width)).astype(np.float32)


def _compare(found, model, pixels):
    with torch.no_grad():
        expected = model(torch.from_numpy(pixels)).numpy()
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("size", [(1, 64), (2, 130)])
def test_outputs(case, size):
    found = cc.models.load(case[1])
    assert found.task == "text-recognition"
    _compare(found(lines(*size))[LOGITS], case[0], lines(*size))


def test_gguf(case, tmp_path):
    cc.convert(case[1], tmp_path / "m.gguf")
    _compare(cc.models.load(tmp_path / "m.gguf")(lines(1, 96))[LOGITS], case[0], lines(1, 96))


def test_export(case, tmp_path):
    cc.convert(case[1], tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    for pixels in (lines(2, 64), lines(1, 192)):
        _compare(session.run([LOGITS], {"pixel_values": pixels})[0], case[0], pixels)
    assert cc.models.load(tmp_path / "m.onnx").task == "text-recognition"


def test_prediction(case, tmp_path):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 90), np.uint8))
    image.save(tmp_path / "line.png")
    ((row,),) = cc.models.load(case[1]).predict([str(tmp_path / "line.png")])
    assert row.keys() == {"text", "score"}
    assert 0 <= row["score"] <= 1


def test_repetitions_and_blanks_are_left_out():
    """The rule of CTC: a character counts again only after a blank."""
    places = [0, 3, 3, 0, 3, 1, 1, 2, 0, 0]
    logits = np.full((len(places), CHARACTERS), -9.0, np.float32)
    logits[np.arange(len(places)), places] = 9
    text, score = decoded(logits, ["[blank]", "a", "b", "c", *"defgh"])
    assert text == "ccab"
    assert score == pytest.approx(1, abs=1e-3)
    assert decoded(logits[:1], [""] * CHARACTERS) == ("", 0.0)
