"""open_clip_config.json: what it states, as the settings of timm of the same effect, and what is refused."""

import json

import numpy as np
import pytest
from candle_convert import FormatError
from candle_convert.models.preprocess.open_clip_transform import open_clip_preparation
from candle_convert.models.preprocess.timm_transform import timm_preparation
from candle_convert.tests.builders.pictures import MADE

EVEN = {"crop_pct": 1, "mean": [0.0], "std": [1.0], "input_size": [3, 64, 64]}


def _config(**stated):
    return {"model_cfg": {"vision_cfg": {"image_size": 64}}, "preprocess_cfg": {"mean": [0.0], "std": [1.0], **stated}}


@pytest.mark.parametrize(("mode", "crop_mode"), [("shortest", "center"), ("squash", "squash")])
@pytest.mark.parametrize("filter", ["bilinear", "bicubic"])
def test_modes(mode, crop_mode, filter):
    ours = open_clip_preparation(_config(resize_mode=mode, interpolation=filter))
    theirs = timm_preparation({**EVEN, "crop_mode": crop_mode, "interpolation": filter})
    assert all(np.array_equal(ours.prepare(each).values, theirs.prepare(each).values) for each in MADE)


def test_the_longest_edge_is_kept_and_the_rest_filled():
    picture = np.full((32, 64, 3), 255, np.uint8)
    for color in (0, 51):
        values = open_clip_preparation(_config(resize_mode="longest", fill_color=color)).prepare(picture).values
        assert values.reshape(3, 64, 64)[0, [0, 15, 16, 47, 48], 5] == pytest.approx(
            [color / 255, color / 255, 1, 1, color / 255]
        )


@pytest.mark.parametrize(
    "config",
    [
        _config(resize_mode="random"),
        _config(fill_color=1000),
        _config(size=1 << 40),
        {"model_cfg": []},
        {"model_cfg": {"vision_cfg": 3}},
        {"model_cfg": {}, "preprocess_cfg": [1]},
    ],
    ids=json.dumps,
)
def test_invalid_configurations_are_refused(config):
    with pytest.raises(FormatError) as caught:
        open_clip_preparation(config, "open_clip_config.json")
    assert caught.value.code == "E-PREPROCESSOR"
