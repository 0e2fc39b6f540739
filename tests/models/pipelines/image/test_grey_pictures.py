"""Classifiers of one channel read pictures as grey; onnxruntime and Pillow are the reference."""

import json

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.paths import EXAMPLES
from PIL import Image

DIGITS = EXAMPLES / "digits.onnx"
SETTINGS = {"size": 8, "do_normalize": True, "do_rescale": True, "image_std": [0.5] * 3}


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
@pytest.mark.parametrize("mean", [[0.25], [0.25] * 3])
def test_scores_of_a_digit(mode, mean, tmp_path, capsys):
    values = cc.load_file(EXAMPLES / "digits.npz")["image"][0, 0]
    Image.fromarray((values * 255).astype(np.uint8)).convert(mode).save(tmp_path / "digit.png")
    (tmp_path / "settings.json").write_text(json.dumps({**SETTINGS, "image_mean": mean}))
    words = ["--task", "image-classification", "--preprocessor", str(tmp_path / "settings.json"), "--json"]
    assert run(["predict", str(DIGITS), str(tmp_path / "digit.png"), *words]) == 0
    grey = np.asarray(Image.open(tmp_path / "digit.png").convert("L"), np.float32)
    session = onnxruntime.InferenceSession(DIGITS)
    (logits,) = session.run(None, {"image": ((grey / 255 - 0.25) / 0.5)[None, None].astype(np.float32)})
    powers = np.exp(logits[0] - logits[0].max())
    (result,) = json.loads(capsys.readouterr().out)["results"]
    scores = {row["label"]: row["score"] for row in result["found"]}
    assert len(scores) == 5
    for number, score in enumerate(powers / powers.sum()):
        if f"LABEL_{number}" in scores:
            assert scores[f"LABEL_{number}"] == pytest.approx(score, abs=1e-5)


def test_factors_of_each_channel_do_not_fit(tmp_path, capsys):
    Image.new("RGB", (8, 8)).save(tmp_path / "digit.png")
    (tmp_path / "settings.json").write_text(json.dumps({**SETTINGS, "image_mean": [0.1, 0.2, 0.3]}))
    words = ["--task", "image-classification", "--preprocessor", str(tmp_path / "settings.json"), "--json"]
    assert run(["predict", str(DIGITS), str(tmp_path / "digit.png"), *words]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "E-RUN-SHAPE"
