"""pretrained_cfg of timm: pictures prepared as timm's create_transform does, by recorded values."""

import json

import numpy as np
import pytest
from candle_convert import FormatError
from candle_convert.models.preprocess.timm_transform import timm_preparation
from candle_convert.tests.builders.pictures import MADE
from candle_convert.tests.builders.timm_transforms import CONFIGS, recorded, sampled


@pytest.mark.parametrize("number", range(len(CONFIGS)), ids=[json.dumps(config) for config in CONFIGS])
def test_values_are_those_of_timm(number):
    ours = timm_preparation(CONFIGS[number])
    for picture, expected in zip(MADE, recorded()[number], strict=True):
        found = sampled(ours.prepare(picture).values)
        assert found["shape"] == expected["shape"]
        assert np.abs(np.subtract(found["values"], expected["values"])).max() < min(ours.factor) / 2


def test_grey_pictures():
    assert timm_preparation({"input_size": [1, 28, 28], "mean": [0.5], "std": [0.5]}).prepare(MADE[0]).values.shape == (
        1,
        28,
        28,
    )


@pytest.mark.parametrize(
    "config",
    [
        {"input_size": [3, 224]},
        {"input_size": [3, 224, 1 << 30]},
        {"input_size": [4, 224, 224]},
        {"input_size": 224},
        {"crop_pct": 1e-9},
        {"crop_pct": "all"},
        {"crop_mode": "random"},
        {"interpolation": "random"},
        {"mean": [0.5, 0.5]},
        {"std": [0, 1, 1]},
    ],
    ids=json.dumps,
)
def test_invalid_configurations_are_refused(config):
    with pytest.raises(FormatError) as caught:
        timm_preparation(config, "config.json")
    assert caught.value.code == "E-PREPROCESSOR"
