"""Weights of image models that are missing, cut or of another shape: one error that says so, and no other exception."""

import json

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.tests.builders.timm_outputs import CASES, pixels, recorded, weights

RECORDED = recorded()


def _damaged(made, random):
    """A copy of weights in which one tensor is missing, has another shape, or another name."""
    name = random.choice(sorted(made))
    array = made[name]
    kind = random.integers(5)
    rest = {key: value for key, value in made.items() if key != name}
    if kind == 0:
        return rest
    if kind == 1:
        return {**rest, name.replace("0", "3"): array}
    if kind == 2:
        return {**rest, name: np.zeros((*array.shape, 2), np.float32)}
    if kind == 3 and array.ndim:
        return {**rest, name: np.zeros((array.shape[0] + 1, *array.shape[1:]), np.float32)}
    return {**rest, name: np.zeros(max(1, array.size), np.float32)}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_damaged_weights(name, full, tmp_path):
    random = np.random.default_rng(len(name))
    case = RECORDED[name]
    made = weights(case)
    config = {"architecture": name, "model_args": case["arguments"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for _ in range(8 if full else 4):
        cc.save_file(_damaged(made, random), tmp_path / "model.safetensors")
        try:
            found = cc.models.load(tmp_path)(pixel_values=pixels(*case["size"]))
        except cc.Error:
            continue
        assert set(found) <= {"logits", "last_hidden_state", "pooler_output", "cls_logits", "distillation_logits"}


@pytest.mark.parametrize("value", [-1, 0, 7, 10**9, "x", None, [1], {}])
@pytest.mark.parametrize("key", ["num_heads", "img_size", "global_pool", "act_layer"])
def test_damaged_arguments(key, value, tmp_path):
    for name in ("vit_tiny_patch16_224", "eva02_tiny_patch14_224"):
        case = RECORDED[name]
        config = {"architecture": name, "model_args": {**case["arguments"], key: value}}
        (tmp_path / "config.json").write_text(json.dumps(config))
        cc.save_file(weights(case), tmp_path / "model.safetensors")
        try:
            cc.models.load(tmp_path)
        except cc.Error as error:
            assert error.code.startswith("E-ARCH")


@pytest.mark.parametrize("value", [3, True, "x", [1]])
def test_arguments_that_are_no_object(value, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "resnet18", "model_args": value}))
    cc.save_file(weights(RECORDED["resnet18"]), tmp_path / "model.safetensors")
    with pytest.raises(cc.FormatError, match="invalid parameter model_args"):
        cc.models.load(tmp_path)


def test_a_bias_of_another_length_before_a_scale(tmp_path):
    case = RECORDED["fastvit_sa12"]
    made = weights(case)
    name = "stages.0.blocks.0.mlp.fc2.bias"
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "fastvit_sa12", "model_args": case["arguments"]}))
    cc.save_file({**made, name: np.concatenate([made[name]] * 2)}, tmp_path / "model.safetensors")
    with pytest.raises(cc.Error, match="bias"):
        cc.models.load(tmp_path)(pixel_values=pixels(*case["size"]))
