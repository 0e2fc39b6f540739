"""Audio codecs against transformers: codes and samples, through GGUF and back, and exported to ONNX."""

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.tests.builders.audio_codecs import CASES, codec, sound
from candle_convert.tests.builders.image_checkpoints import saved

TOLERANCE = 1e-4


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    kind, settings = CASES[request.param]
    model = codec(kind, **settings)
    return model, saved(model, tmp_path_factory.mktemp(request.param) / "hf")


def _sound(model, length):
    return sound(2, getattr(model.config, "audio_channels", 1), length)


def _encoded(model, samples, quantizers=None):
    """Codes, scales and padding of transformers."""
    x = torch.from_numpy(samples)
    with torch.no_grad():
        if type(model).__name__ == "DacModel":
            return model.encode(x, quantizers).audio_codes.numpy(), None, 0
        if type(model).__name__ == "MimiModel":
            return model.encode(x, num_quantizers=None if quantizers is None else 3).audio_codes.numpy(), None, 0
        bandwidths = model.config.target_bandwidths
        found = model.encode(x, bandwidth=bandwidths[-1 if quantizers is None else quantizers])
        scales = None if found.audio_scales[0] is None else torch.stack(list(found.audio_scales)).numpy()
        return found.audio_codes.numpy(), scales, found.last_frame_pad_length


def _decoded(model, codes, scales=None):
    with torch.no_grad():
        given = torch.from_numpy(codes)
        if type(model).__name__ == "DacModel":
            return model.decode(audio_codes=given).audio_values.numpy()[:, None]
        if type(model).__name__ == "MimiModel":
            return model.decode(given).audio_values.numpy()
        several = [None] * len(codes) if scales is None else list(torch.from_numpy(scales))
        return model.decode(given, several).audio_values.numpy()


def _close(found, expected, name=""):
    assert found.shape == expected.shape, name
    assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max(), name


def _check(model, ours, samples):
    """Codes are equal; so are samples of transformers' codes."""
    codes, scales, padding = _encoded(model, samples)
    found = ours.encode(samples)
    assert np.array_equal(found.codes, codes)
    assert found.padding == padding
    if scales is not None:
        _close(found.scales, scales)
    _close(ours.decode(codes, scales), _decoded(model, codes, scales))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("length", [960, 1009, 40])
def test_codes_and_samples(case, length):
    model, folder = case
    if type(model).__name__ == "DacModel":
        length -= length % model.config.hop_length
    _check(model, cc.models.load(folder), _sound(model, length))


@pytest.mark.sampled(3)
def test_a_round_trip_has_the_length_of_the_audio(case):
    model, folder = case
    ours = cc.models.load(folder)
    samples = _sound(model, 1234 if type(model).__name__ == "EncodecModel" else 1200)
    found = ours.decode(ours.encode(samples))
    lacking = 1 if getattr(model.config, "downsampling_ratios", [2])[0] == 3 else 0
    assert found.shape == (2, ours.channels, samples.shape[2] - lacking)


@pytest.mark.sampled(3)
def test_fewer_quantizers(case):
    model, folder = case
    ours, samples = cc.models.load(folder), _sound(model, 480)
    codes, scales, _ = _encoded(model, samples, 1)
    kbits = getattr(model.config, "target_bandwidths", None)
    options = {"num_quantizers": codes.shape[-2]} if kbits is None else {"bandwidth": kbits[1]}
    found = ours.encode(samples, **options)
    assert np.array_equal(found.codes, codes)
    _close(ours.decode(codes, scales), _decoded(model, codes, scales))


@pytest.mark.sampled(3)
def test_gguf_and_back(case, tmp_path):
    model, folder = case
    cc.convert(folder, tmp_path / "m.gguf")
    cc.convert(tmp_path / "m.gguf", tmp_path / "hf", to="safetensors")
    samples = _sound(model, 480)
    _check(model, cc.models.load(tmp_path / "m.gguf"), samples)
    _check(model, cc.models.load(tmp_path / "hf"), samples)
    again, report = type(model).from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]
    assert np.array_equal(_encoded(again.eval(), samples)[0], _encoded(model, samples)[0])


@pytest.mark.sampled(3)
def test_export(case, tmp_path):
    model, folder = case
    cc.convert(folder, tmp_path / "onnx", to="onnx")
    samples = _sound(model, 216)
    if not getattr(model.config, "normalize", False):
        encoder = onnxruntime.InferenceSession(tmp_path / "onnx" / "encoder_model.onnx")
        (codes,) = encoder.run(["audio_codes"], {"input_values": samples})
        expected = _encoded(model, samples)[0]
        assert np.array_equal(codes, expected.reshape(codes.shape))
        decoder = onnxruntime.InferenceSession(tmp_path / "onnx" / "decoder_model.onnx")
        (found,) = decoder.run(["audio_values"], {"audio_codes": codes})
        _close(found, _decoded(model, expected))
    _check(model, cc.models.load(tmp_path / "onnx"), samples)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("kind", "decibels"), [("Q8_0", 40), ("onnx", 40)])
def test_quantized(case, kind, decibels, tmp_path):
    """Blocks in a GGUF file, and f16 in ONNX files: the samples of transformers' codes are almost its own."""
    model, folder = case
    path = tmp_path / ("m.gguf" if kind == "Q8_0" else "onnx")
    if kind == "Q8_0":
        cc.quantize(folder, path, kind)
    else:
        cc.convert(folder, path, to="onnx", dtype="f16")
    codes, scales, _ = _encoded(model, _sound(model, 480))
    found, expected = cc.models.load(path).decode(codes, scales), _decoded(model, codes, scales)
    error = np.square(found - expected, dtype=np.float64).sum()
    assert 10 * np.log10(np.square(expected, dtype=np.float64).sum() / error) > decibels
