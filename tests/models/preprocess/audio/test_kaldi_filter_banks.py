"""Kaldi's filter banks: ASTFeatureExtractor of transformers is right."""

import numpy as np
import pytest
import transformers
from candle_convert.models.preprocess.audio.framing import windows_of
from candle_convert.models.preprocess.audio.kaldi_filter_banks import FilterBanks, stated_filter_banks
from candle_convert.runtime.base.errors import FormatError


@pytest.mark.parametrize("count", [400, 5_000, 16_000, 40_000])
@pytest.mark.parametrize(
    "settings",
    [{}, {"num_mel_bins": 32, "max_length": 100}, {"do_normalize": False}, {"mean": -2.0, "std": 3.0}],
    ids=["usual", "small", "energies", "normalized"],
)
@pytest.mark.filterwarnings("ignore:At least one mel filter")
def test_spectrograms(count, settings):
    extractor = transformers.ASTFeatureExtractor(**settings)
    samples = 0.1 * np.random.default_rng(count).standard_normal(count).astype(np.float32)
    expected = extractor(samples, sampling_rate=16_000, return_tensors="np")["input_values"][0]
    frames, bands = expected.shape
    found = stated_filter_banks(extractor.to_dict(), None, bands, frames)(samples)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_silence_and_short_sounds():
    banks = FilterBanks()
    assert np.isfinite(banks(np.zeros(16_000, np.float32))).all()
    assert banks.energies(np.ones(7, np.float32)).shape == (1, 128)


@pytest.mark.parametrize(
    "said", [{"max_length": 5}, {"num_mel_bins": 0}, {"sampling_rate": "x"}, {"std": 0}, {"mean": float("nan")}]
)
def test_invalid_settings(said):
    with pytest.raises(FormatError, match=r"preprocessor_config\.json"):
        stated_filter_banks(said, None, 128, 1024)


@pytest.mark.parametrize("said", [{"std": 1e-320}, {"std": 1e-38, "mean": 3e38}, {"std": 3e38}], ids=str)
def test_settings_that_exceed_f32(said):
    """Finite features, or one line."""
    try:
        found = stated_filter_banks({"mean": 0.0, **said}, None, 128, 1024)(np.ones(16_000, np.float32))
    except FormatError as error:
        assert error.code == "E-PREPROCESSOR-KEY"
    else:
        assert np.isfinite(found).all()


@pytest.mark.parametrize("cuts", [[], [3], [4, 8], [1, 2, 9, 9]])
def test_windows_do_not_depend_on_blocks(cuts):
    samples = np.arange(10, dtype=np.float32)
    found = list(windows_of(np.split(samples, cuts), 4))
    assert [len(each) for each in found] == [4, 4, 2]
    np.testing.assert_array_equal(np.concatenate(found), samples)
