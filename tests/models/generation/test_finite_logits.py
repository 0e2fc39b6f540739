"""Settings that float32 holds but whose results it does not: logits are refused, as generated text is."""

import json

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.tests.builders.decoder_cases import DECODERS, WITHOUT_GGUF
from candle_convert.tests.oracles.transformers import made

KINDS = {case.config["model_type"]: case for case in reversed((*DECODERS, *WITHOUT_GGUF))}
SETTINGS = [("cohere", "logit_scale", 3e38), ("cohere", "logit_scale", -3e38)]
"""Model type, key of config.json and value of which transformers' logits are infinite."""


@pytest.mark.parametrize(("kind", "key", "value"), SETTINGS)
def test_infinite_logits_are_refused(kind, key, value, tmp_path):
    torch = pytest.importorskip("torch")
    reference = made(KINDS[kind], 0, tmp_path)
    ids = np.random.default_rng(0).integers(3, 90, (1, 9))
    with torch.no_grad():
        usual = reference(input_ids=torch.tensor(ids)).logits
    assert np.isfinite(models.load(tmp_path, threads=1).logits(ids)).all()
    stated = json.loads((tmp_path / "config.json").read_text())
    assert not torch.isfinite(usual / stated[key] * value).all()
    (tmp_path / "config.json").write_text(json.dumps({**stated, key: value}))
    model = models.load(tmp_path, threads=1)
    with pytest.raises(cc.UnsupportedError, match="E-MODEL-NAN"):
        model.logits(ids)
