"""Checking directories of diffusers: every part, and the JSON files beside them."""

import json

import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.text_to_image import stable_diffusion

safetensors = pytest.importorskip("safetensors.numpy")
pytest.importorskip("diffusers")


def test_every_part_is_checked(tmp_path, capsys):
    folder = tmp_path / "sd1"
    pipeline = stable_diffusion(folder)
    assert run(["check", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    expected = [getattr(pipeline, name) for name in ("text_encoder", "unet", "vae")]
    assert told["tensors"] == sum(len(part.state_dict()) for part in expected)
    assert {name.split("/")[-2] for name in told["inputs"]} == {"text_encoder", "unet", "vae"}
    path = folder / "vae/diffusion_pytorch_model.safetensors"
    weights = safetensors.load_file(path)
    name = next(iter(weights))
    weights[name] = np.full_like(weights[name], np.nan)
    safetensors.save_file(weights, path)
    (folder / "scheduler/scheduler_config.json").write_text("{")
    assert run(["check", str(folder), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    assert any(each["code"] == "W-NAN" for each in found)
    assert any("scheduler_config.json" in json.dumps(each) for each in found)


def test_onnx_pipelines(tmp_path, capsys):
    stable_diffusion(tmp_path / "sd1")
    assert run(["convert", str(tmp_path / "sd1"), str(tmp_path / "onnx"), "--to", "onnx"]) == 0
    capsys.readouterr()
    assert run(["check", str(tmp_path / "onnx"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    folders = {name.split("/")[-2] for name in told["inputs"]}
    assert folders == {"text_encoder", "unet", "vae_encoder", "vae_decoder"}
