"""stft and istft: spectra, signals and gradients are torch's."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.tests.oracles.torch_gradients import compare_with_torch, complex_array

SIGNAL = complex_array(2, 100, dtype=np.float32)
WINDOW = (np.hanning(17)[:-1] + 0.1).astype(np.float32)
SPECTRA = {
    "defaults": lambda m, x, w: m.stft(x, 16, window=w, return_complex=True),
    "one signal": lambda m, x, w: m.stft(x[0], 16, 4, window=w, return_complex=True, normalized=True),
    "two sides": lambda m, x, w: m.stft(x, 20, 5, 16, window=w, return_complex=True, onesided=False, center=False),
    "no window": lambda m, x, w: m.stft(x * w[0], 20, 5, 16, return_complex=True, pad_mode="constant"),
    "parts": lambda m, x, w: m.stft(x * w[0], 20, 5, return_complex=False, pad_mode="replicate"),
    "circular": lambda m, x, w: m.stft(x, 16, 5, window=w, return_complex=True, pad_mode="circular"),
    "complex": lambda m, x, w: m.stft(x + 1j * x, 16, 5, window=w),
    "aligned": lambda m, x, w: m.stft(x, 20, 5, 16, window=w, return_complex=True, center=False, align_to_window=True),
    "method": lambda m, x, w: x.stft(16, 4, window=w, return_complex=True),
}
SIGNALS = {
    "defaults": (lambda m, x, w: m.stft(x, 16, 4, window=w, return_complex=True), {}),
    "cut": (lambda m, x, w: m.stft(x, 16, 4, window=w, return_complex=True), {"length": 90}),
    "longer": (lambda m, x, w: m.stft(x, 16, 4, window=w, return_complex=True), {"length": 120}),
    "one signal": (
        lambda m, x, w: m.stft(x[0], 16, 4, window=w, return_complex=True, normalized=True),
        {"normalized": True},
    ),
    "two sides": (lambda m, x, w: m.stft(x, 16, 4, window=w, return_complex=True, onesided=False), {"onesided": False}),
    "complex": (lambda m, x, w: m.stft(x + 1j * x, 16, 4, window=w), {"onesided": False, "return_complex": True}),
    "not centered": (lambda m, x, w: m.stft(x, 16, 4, window=w, return_complex=True), {"center": False}),
}


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.filterwarnings("ignore")
def test_spectra(name):
    compare_with_torch(SPECTRA[name], SIGNAL, WINDOW)


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.filterwarnings("ignore")
def test_signals(name):
    spectra, options = SIGNALS[name]
    compare_with_torch(lambda m, x, w: m.istft(spectra(m, x, w), 16, 4, window=w, **options), SIGNAL, WINDOW)


def test_a_second_of_sound_comes_back():
    x = complex_array(48000, dtype=np.float32)
    window = cc.hann_window(1024)
    spectra = cc.stft(cc.tensor(x), 1024, 256, window=window, return_complex=True)
    theirs = torch.stft(torch.tensor(x), 1024, 256, window=torch.hann_window(1024), return_complex=True)
    np.testing.assert_allclose(spectra.numpy(), theirs.numpy(), atol=2e-4)
    np.testing.assert_allclose(cc.istft(spectra, 1024, 256, window=window, length=48000).numpy(), x, atol=1e-5)


@pytest.mark.parametrize(
    ("compute", "why"),
    [
        (lambda m, x, w: m.stft(x, 16), "return_complex=True"),
        (lambda m, x, w: m.stft(x + 1j, 16, onesided=True), "onesided=False"),
        (lambda m, x, w: m.stft(x, 300, return_complex=True), "smaller n_fft"),
        (lambda m, x, w: m.stft(x, 300, return_complex=True, center=False), "n_fft from 1 to 100"),
        (lambda m, x, w: m.stft(x, 12, window=w, return_complex=True), "window of shape"),
        (lambda m, x, w: m.stft(x, 12, 0, return_complex=True), "hop_length of 0"),
        (lambda m, x, w: m.istft(x, 12), "complex elements"),
        (lambda m, x, w: m.istft(m.stft(x, 16, 4, return_complex=True), 20, 4), "9 frequencies"),
        (lambda m, x, w: m.istft(m.stft(x, 16, 40, return_complex=True), 16, 40), "windows leave samples out"),
    ],
)
def test_errors_name_what_does_not_fit(compute, why):
    with pytest.raises(cc.UsageError, match=why):
        compute(cc, cc.tensor(SIGNAL), cc.tensor(WINDOW))
    with pytest.raises(RuntimeError):
        compute(torch, torch.tensor(SIGNAL), torch.tensor(WINDOW))
