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


def test_filters():
    filters = transformers().audio_utils.mel_filter_bank(201, 128, 0, 8000, 16000, norm="slaney", mel_scale="slaney")
    np.testing.assert_allclose(mel_filters(128, 400, 16000), filters.T, atol=1e-8)


def test_samples_of_more_than_a_window():
    with pytest.raises(UsageError, match="E-SOUND-WINDOW"):
        LogMel()(np.zeros(480_001, np.float32))


def test_settings_of_files():
    assert stated_log_mel({"feature_size": 128, "chunk_length": 2}, None, LogMel()) == LogMel(128, seconds=2)
    for said in ({"hop_length": 0}, {"n_fft": "a"}, {"chunk_length": 1e9}, {"n_fft": 128, "hop_length": 160}):
        with pytest.raises(FormatError, match="E-PREPROCESSOR-KEY"):
            stated_log_mel(said, None, LogMel())
