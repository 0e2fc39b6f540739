"""Long audio: windows and states give the codes and samples that transformers computes of the whole at once."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.models.pipelines.audio.codec import codec_stages
from candle_convert.tests.builders.audio_codecs import CASES, codec, sound
from candle_convert.tests.builders.image_checkpoints import saved

KINDS = ("encodec", "encodec-zeros", "encodec-edges", "encodec-stereo", "dac", "dac-odd", "mimi")


@pytest.fixture(scope="module", params=KINDS)
def case(request, tmp_path_factory):
    kind, settings = CASES[request.param]
    model = codec(kind, **settings)
    return model, saved(model, tmp_path_factory.mktemp(request.param) / "hf")


@pytest.fixture(autouse=True)
def _short_windows(monkeypatch):
    monkeypatch.setattr(codec_stages, "SECONDS", 0.05)


def test_whole_audio(case):
    model, folder = case
    ours = cc.models.load(folder)
    multiple = ours.config.values.get("multiple") or 1
    samples = sound(1, ours.channels, 9_601 // multiple * multiple)
    is_encodec = type(model).__name__ == "EncodecModel"
    with torch.no_grad():
        options = {"bandwidth": model.config.target_bandwidths[-1]} if is_encodec else {}
        made = model.encode(torch.from_numpy(samples), **options)
        scales = {"audio_scales": made.audio_scales} if is_encodec else {}
        decoded = model.decode(audio_codes=made.audio_codes, **scales)
    codes = made.audio_codes.numpy()
    assert np.array_equal(ours.encode(samples).codes, codes)
    loudness = None if not is_encodec or made.audio_scales[0] is None else torch.stack(list(made.audio_scales)).numpy()
    blocks = list(ours.decoded_blocks(codes, loudness))
    assert len(blocks) > 2
    audio, expected = np.concatenate(blocks, 2), decoded.audio_values.numpy().reshape(1, ours.channels, -1)
    assert audio.shape == expected.shape
    assert np.abs(audio - expected).max() <= 1e-4 * np.abs(expected).max()


def test_a_stream_of_another_rate(case):
    """Blocks from a file have the codes of all samples at once."""
    _, folder = case
    ours = cc.models.load(folder)
    samples = sound(2, 12_000)
    seen = []
    found = ours.encode_sound((samples.T, 22_050), progress=lambda done, total: seen.append((done, total)))
    expected = ours.encode(samples if ours.channels > 1 else samples.mean(0), 22_050)
    assert np.array_equal(found.codes, expected.codes)
    assert found.length == expected.length
    assert seen[-1] == pytest.approx((12_000 / 22_050, 12_000 / 22_050), rel=1e-3)
