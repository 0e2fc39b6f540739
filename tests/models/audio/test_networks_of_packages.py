"""CREPE, Silero VAD and the speaker encoder against torch: from their own files, through every format and back."""

import json
import re

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import safetensors.torch
import torch
from candle_convert.tests.builders.audio_networks import NETWORKS, network

TASKS = {"crepe": "pitch-estimation", "silero_vad": "voice-activity-detection", "speaker_encoder": "speaker-embedding"}
UNUSED = re.compile(r"^similarity_|num_batches_tracked$")
"""Tensors that computing needs none of: GGUF files do not have them."""


@pytest.fixture(scope="module", params=NETWORKS)
def case(request, tmp_path_factory):
    """The name, a file as the package has it, inputs, and outputs in torch."""
    name = request.param
    folder = tmp_path_factory.mktemp(name)
    model, inputs = network(name)
    if name == "silero_vad":
        path = folder / "m.safetensors"
        safetensors.torch.save_file(model.state_dict(), path)
    else:
        path = folder / "m.pt"
        legacy = name == "speaker_encoder"
        content = {"step": 1, "model_state": model.state_dict()} if legacy else model.state_dict()
        torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    with torch.no_grad():
        expected = {key: value.numpy() for key, value in model(**inputs).items()}
    return name, path, {key: value.numpy() for key, value in inputs.items()}, expected


def _compare(found, expected):
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=3e-5 * np.abs(value).max(), err_msg=name)


@pytest.mark.parametrize("to", [None, "m.safetensors", "m.npz", "m.gguf", "m.pth", "m.onnx"])
def test_outputs_of_every_format(case, to, tmp_path):
    name, path, inputs, expected = case
    if to is not None:
        cc.convert(path, tmp_path / to)
        path = tmp_path / to
    model = cc.models.load(path)
    assert model.task == TASKS[name]
    _compare(model(**inputs), expected)


def test_export_runs_in_onnxruntime(case, tmp_path):
    _, path, inputs, expected = case
    cc.convert(path, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    names = [output.name for output in session.get_outputs()]
    _compare(dict(zip(names, session.run(None, inputs), strict=True)), expected)


def test_gguf_and_back(case, tmp_path):
    name, path, inputs, expected = case
    cc.convert(path, tmp_path / "m.gguf")
    failed = cc.verify(path, tmp_path / "m.gguf").failed
    assert all(each.status == "missing" and UNUSED.search(each.name) for each in failed)
    cc.convert(tmp_path / "m.gguf", tmp_path / "back", to="safetensors")
    assert json.loads((tmp_path / "back" / "config.json").read_text())["model_type"] == name
    _compare(cc.models.load(tmp_path / "back")(**inputs), expected)
    model, _ = network(name)
    kept = {key: value for key, value in model.state_dict().items() if not key.startswith("similarity")}
    for key, value in cc.load_file(tmp_path / "back" / "model.safetensors").items():
        np.testing.assert_array_equal(value, kept[key].numpy())


def test_damaged_weights_are_refused(case, tmp_path):
    _, path, _, _ = case
    weights = cc.load_file(path)
    first = next(key for key in weights if weights[key].ndim > 1)
    cc.save_file({**weights, first: weights[first][:-1]}, tmp_path / "m.safetensors")
    with pytest.raises(cc.Error):
        cc.models.load(tmp_path / "m.safetensors")(**case[2])
