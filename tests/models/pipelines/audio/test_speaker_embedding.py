"""Vectors of voices, as Resemblyzer makes them: torch's transform and transformers' filters are right."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.tests.builders.audio_networks import network
from transformers.audio_utils import mel_filter_bank


def embedded(model, samples):
    """``VoiceEncoder.embed_utterance`` of Resemblyzer for the usual rate of parts."""
    frames, step = -(-(len(samples) + 1) // 160), 77
    starts = list(range(0, max(1, frames - 160 + step + 1), step))
    if (len(samples) - starts[-1] * 160) / 25_600 < 0.75 and len(starts) > 1:
        starts = starts[:-1]
    padded = np.pad(samples, (0, max(0, (starts[-1] + 160) * 160 - len(samples))))
    spectrum = torch.stft(
        torch.from_numpy(padded), 400, 160, window=torch.hann_window(400), pad_mode="constant", return_complex=True
    )
    filters = mel_filter_bank(201, 40, 0, 8_000, 16_000, norm="slaney", mel_scale="slaney")
    mels = (spectrum.abs().double() ** 2).T @ torch.from_numpy(filters)
    with torch.no_grad():
        parts = model(torch.stack([mels[start : start + 160] for start in starts]).float())["embeds"].numpy()
    mean = parts.mean(0)
    return mean / np.linalg.norm(mean)


@pytest.mark.parametrize("count", [4_000, 30_000, 100_000])
def test_vectors(tmp_path, count):
    model, _ = network("speaker_encoder")
    torch.save({"model_state": model.state_dict()}, tmp_path / "speaker.pt", _use_new_zipfile_serialization=False)
    samples = 0.5 * np.random.default_rng(count).standard_normal(count).astype(np.float32)
    loaded = cc.models.load(tmp_path / "speaker.pt")
    np.testing.assert_allclose(loaded.embed((samples, 16_000)), embedded(model, samples), atol=1e-5)
    quiet = samples / np.float32(1_000)
    raised = quiet * np.float32(10**-1.5 / np.sqrt(np.mean(quiet.astype(np.float64) ** 2)))
    np.testing.assert_allclose(loaded.embed((quiet, 16_000)), embedded(model, raised), atol=1e-5)
    np.testing.assert_allclose(loaded.embed((quiet, 16_000), raise_volume=False), embedded(model, quiet), atol=1e-5)
    assert loaded.embed([(samples, 16_000), (samples, 8_000)]).shape == (2, 16)
