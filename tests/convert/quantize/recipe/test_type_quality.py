"""The figures that `types` shows are what the types do to normal numbers, measured here again."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.quantize.recipe.choose_type import NEEDS_IMPORTANCE
from candle_convert.convert.quantize.recipe.type_quality import SNR_DB
from candle_convert.runtime.tensor.block_codec import codecs
from candle_convert.runtime.tensor.dtype import DTYPES

VALUES = np.random.default_rng(1).standard_normal((16, 4096))
SLOW = ("iq1", "iq2", "iq3")


@pytest.mark.parametrize("name", SNR_DB)
def test_figures(name):
    values = VALUES[:2] if name.startswith(SLOW) else VALUES
    importance = np.ones(4096) if name in NEEDS_IMPORTANCE else None
    after = cc.decode(cc.encode(values, name, importance), name, values.shape).astype(np.float64)
    snr = 10 * np.log10((values**2).sum() / ((values - after) ** 2).sum())
    assert snr == pytest.approx(SNR_DB[name], abs=0.2)


def test_every_type_with_an_encoder_has_a_figure():
    wanted = {codec.dtype.name for codec in codecs().values() if codec.encoder is not None}
    assert wanted == {name for name in SNR_DB if DTYPES[name].kind == "block"}
