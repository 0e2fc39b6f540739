"""SNAC against its authors' code: codes of several lengths, with and without attention, through GGUF and back."""

import json

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import snac
import torch
from candle_convert.tests.builders.audio_codecs import sound

SETTINGS = {
    "sampling_rate": 16000, "encoder_dim": 4, "encoder_rates": [2, 3], "latent_dim": None, "decoder_dim": 64,
    "decoder_rates": [3, 2], "attn_window_size": None, "codebook_size": 32, "codebook_dim": 4, "vq_strides": [4, 2, 1],
    "noise": False, "depthwise": True,
}  # fmt: skip
CASES = {
    "depthwise": {},
    "attention": {"attn_window_size": 8, "encoder_dim": 32, "decoder_rates": [2, 3]},
    "dense": {"depthwise": False},
}
TOLERANCE = 1e-4


def made(folder, **changes):
    """A model with small random weights, and its directory as the hub has it."""
    settings = SETTINGS | changes
    torch.manual_seed(3)
    model = snac.SNAC(**settings).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("alpha"):
                parameter.copy_(0.5 + torch.rand(parameter.shape))
            elif name.endswith("original0"):
                parameter.mul_(0.7)
    folder.mkdir()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    (folder / "config.json").write_text(json.dumps(settings))
    return model


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("snac") / request.param
    return made(folder, **CASES[request.param]), folder


def _check(model, ours, samples):
    with torch.no_grad():
        codes = model.encode(torch.from_numpy(samples))
        expected = model.decode(codes).numpy()
    found = ours.encode(samples)
    assert all(np.array_equal(one, other.numpy()) for one, other in zip(found.codes, codes, strict=True))
    samples_again = ours.decode([each.numpy() for each in codes])
    assert np.abs(samples_again - expected).max() <= TOLERANCE * np.abs(expected).max()
    assert ours.decode(found).shape == samples.shape


@pytest.mark.parametrize("length", [960, 1001])
def test_codes_and_samples(case, length):
    model, folder = case
    _check(model, cc.models.load(folder), sound(2, 1, length))


def test_gguf_and_back(case, tmp_path):
    model, folder = case
    cc.convert(folder, tmp_path / "m.gguf")
    cc.convert(tmp_path / "m.gguf", tmp_path / "m.safetensors", names="original")
    samples = sound(2, 1, 700)
    _check(model, cc.models.load(tmp_path / "m.gguf"), samples)
    again = snac.SNAC(**json.loads((folder / "config.json").read_text())).eval()
    weights = {
        name: torch.from_numpy(np.array(item)) for name, item in cc.load_file(tmp_path / "m.safetensors").items()
    }
    buffers = {name: item for name, item in model.state_dict().items() if name.endswith("inv_freq")}
    again.load_state_dict(weights | buffers)
    _check(again, cc.models.load(folder), samples)


def test_export(case, tmp_path):
    model, folder = case
    cc.convert(folder, tmp_path / "onnx", to="onnx")
    samples = sound(2, 1, model.hop_length * 32)
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "encoder_model.onnx")
    names = [output.name for output in session.get_outputs()]
    assert names == ["audio_codes.0", "audio_codes.1", "audio_codes.2"]
    codes = session.run(None, {"input_values": samples})
    with torch.no_grad():
        expected = model.encode(torch.from_numpy(samples))
        audio = model.decode(expected).numpy()
    assert all(np.array_equal(one, other.numpy()) for one, other in zip(codes, expected, strict=True))
    decoder = onnxruntime.InferenceSession(tmp_path / "onnx" / "decoder_model.onnx")
    (found,) = decoder.run(None, dict(zip(names, codes, strict=True)))
    assert np.abs(found - audio).max() <= TOLERANCE * np.abs(audio).max()
    _check(model, cc.models.load(tmp_path / "onnx"), samples)


def test_noise_is_added_and_always_the_same(tmp_path):
    model = made(tmp_path / "noisy", noise=True)
    ours = cc.models.load(tmp_path / "noisy")
    with torch.no_grad():
        codes = [each.numpy() for each in model.encode(torch.from_numpy(sound(1, 1, 960)))]
    found = ours.decode(codes)
    assert np.array_equal(found, ours.decode(codes))
    with torch.no_grad():
        runs = np.stack([model.decode([torch.from_numpy(each) for each in codes]).numpy() for _ in range(16)])
    spread = np.abs(runs - runs.mean(0)).max()
    assert spread > 0
    assert np.abs(found - runs.mean(0)).max() < 3 * spread


def test_codes_of_other_lengths_are_refused(case):
    ours = cc.models.load(case[1])
    codes = [np.zeros((1, count), np.int64) for count in (2, 4, 9)]
    with pytest.raises(cc.Error, match="not codes of the codec"):
        ours.decode(codes)
    with pytest.raises(cc.Error, match="one bandwidth"):
        ours.encode(sound(960), num_quantizers=1)
