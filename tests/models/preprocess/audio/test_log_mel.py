"""Log-mel spectrograms against WhisperFeatureExtractor of transformers."""

import numpy as np
import pytest
from candle_convert.models.preprocess.audio.log_mel import LogMel, mel_filters, stated_log_mel
from candle_convert.runtime.base.errors import FormatError, UsageError
from candle_convert.tests.builders.speech_checkpoints import tones
from candle_convert.tests.oracles.transformers import transformers


@pytest.mark.parametrize("mels", [80, 128])
@pytest.mark.parametrize("seconds", [0.01, 1.3, 30])
def test_as_transformers(mels, seconds):
    extractor = transformers().WhisperFeatureExtractor(feature_size=mels)
    samples = tones(seconds)
    want = extractor(samples, sampling_rate=16000, return_tensors="np").input_features[0]
    np.testing.assert_allclose(LogMel(mels)(samples), want, atol=2e-4)


STATED = [
    {"sampling_rate": 8_000}, {"sampling_rate": 22_050}, {"sampling_rate": 44_101, "chunk_length": 3},
    {"n_fft": 512}, {"n_fft": 399}, {"hop_length": 80, "n_fft": 256}, {"hop_length": 161}, {"feature_size": 33},
    {"dither": 0.0, "padding_value": 0.0, "do_normalize": True, "nb_max_frames": 7, "n_samples": 1},
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:At least one mel filter")
@pytest.mark.parametrize("said", STATED, ids=str)
def test_settings_as_transformers(said):
    """Bands end at 8 kHz at any rate; derived settings count for nothing."""
    said = {"chunk_length": 2, **said}
    extractor = transformers().WhisperFeatureExtractor(**said)
    samples = tones(0.9)
    want = extractor(samples, sampling_rate=extractor.sampling_rate, return_tensors="np").input_features[0]
    mel = stated_log_mel(said, None, LogMel())
    np.testing.assert_allclose(mel(samples), want, atol=2e-4)
    assert (mel.mels, mel.frames) == want.shape


def test_filters():
    filters = transformers().audio_utils.mel_filter_bank(201, 128, 0, 8000, 16000, norm="slaney", mel_scale="slaney")
    np.testing.assert_allclose(mel_filters(128, 400, 16000, 8000.0), filters.T, atol=1e-8)


def test_samples_of_more_than_a_window():
    with pytest.raises(UsageError, match="E-SOUND-WINDOW"):
        LogMel()(np.zeros(480_001, np.float32))


def test_settings_of_files():
    assert stated_log_mel({"feature_size": 128, "chunk_length": 2}, None, LogMel()) == LogMel(128, seconds=2)
    invalid = ({"hop_length": 0}, {"n_fft": "a"}, {"n_fft": 1e9}, {"chunk_length": 1e9}, {"sampling_rate": 1e308},
               {"n_fft": 128, "hop_length": 160}, {"dither": 0.1}, {"dither": float("nan")}, {"padding_value": 1e308},
               {"feature_size": 0}, {"hop_length": 1e-320})  # fmt: skip
    for said in invalid:
        with pytest.raises(FormatError, match="E-PREPROCESSOR-KEY"):
            stated_log_mel(said, None, LogMel())
