"""Pitch: frames as torchcrepe cuts them, and the most probable path, which an exhaustive search finds too."""

import itertools

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.models.pipelines.audio.pitch_estimation import PitchEstimation
from candle_convert.models.postprocess.pitch_path import (
    BINS,
    FREQUENCIES,
    bin_of,
    local_frequencies,
    most_probable_path,
)
from candle_convert.tests.builders.audio_networks import network
from torch.nn import functional


def torch_probabilities(model, samples):
    """What torchcrepe computes of samples at 16 kHz."""
    padded = functional.pad(torch.from_numpy(samples)[None], (512, 512))
    frames = functional.unfold(padded[:, None, None], (1, 1024), stride=(1, 160))[0].T
    frames = frames - frames.mean(1, keepdim=True)
    frames = frames / torch.max(torch.tensor(1e-10), frames.std(1, keepdim=True))
    with torch.no_grad():
        return model(frames)["probabilities"].numpy()


@pytest.mark.parametrize("count", [100, 1_600, 50_000])
def test_frames(tmp_path, count):
    model, _ = network("crepe")
    torch.save(model.state_dict(), tmp_path / "crepe.pth")
    samples = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    loaded = cc.models.load(tmp_path / "crepe.pth")
    expected = torch_probabilities(model, samples)
    np.testing.assert_allclose(PitchEstimation(loaded)._probabilities((samples, 16_000)), expected, atol=3e-5)
    rows = loaded.predict((samples, 16_000))
    assert len(rows) == 1 + count // 160
    np.testing.assert_allclose([row["time"] for row in rows], np.arange(len(rows)) / 100)
    loudest = loaded.predict((samples, 16_000), threshold=0.6)
    assert len(loudest) == sum(row["confidence"] >= 0.6 for row in rows)


def test_path_is_the_most_probable_one():
    random = np.random.default_rng(0)
    visible = np.zeros(BINS, bool)
    visible[100:105] = True
    probabilities = random.random((4, BINS)).astype(np.float32)
    distance = np.abs(np.subtract.outer(np.arange(BINS), np.arange(BINS)))
    moves = np.maximum(12 - distance, 0) / np.maximum(12 - distance, 0).sum(1, keepdims=True)

    def score(path):
        shares = [np.exp(row)[visible] / np.exp(row)[visible].sum() for row in probabilities.astype(np.float64)]
        seen = np.prod([share[each - 100] for share, each in zip(shares, path, strict=True)])
        return seen * np.prod([moves[pair] for pair in itertools.pairwise(path)])

    best = max(itertools.product(range(100, 105), repeat=4), key=score)
    assert tuple(most_probable_path(probabilities, visible)) == best


def test_frequencies():
    assert FREQUENCIES[bin_of(440.0)] <= 440 <= FREQUENCIES[bin_of(440.0, 1)]
    probabilities = np.zeros((1, BINS), np.float32)
    probabilities[0, [99, 100, 101]] = 0.5, 1, 0.5
    np.testing.assert_allclose(local_frequencies(probabilities, np.array([100])), FREQUENCIES[100])
    assert (bin_of(1.0), bin_of(1e6, 1)) == (0, BINS)
