"""config.json made of a GGUF file: transformers reads every setting of it."""

from dataclasses import replace

import candle_convert as cc
import pytest
from candle_convert.tests.builders.decoder_cases import DECODERS, WITHOUT_GGUF
from candle_convert.tests.builders.gguf_cases import built, one_of_each
from candle_convert.tests.oracles.transformers import difference, expected, transformers

pytest.importorskip("torch")
SETTINGS = [
    ("bloom", {"layer_norm_epsilon": 0.05}),
    ("deepseek_v3", {"attention_bias": True}),
    ("ernie4_5", {"use_bias": True}),
    ("falcon", {"layer_norm_epsilon": 0.05}),
    ("gpt2", {"layer_norm_epsilon": 0.05}),
    ("gpt_bigcode", {"layer_norm_epsilon": 0.05}),
    ("phimoe", {"lm_head_bias": True}),
]
"""Model type, and keys of config.json."""


@pytest.mark.parametrize(("kind", "settings"), SETTINGS, ids=[kind for kind, _ in SETTINGS])
def test_settings_come_back(kind, settings, tmp_path):
    case = next(case for case in (*one_of_each(), *DECODERS, *WITHOUT_GGUF) if case.config["model_type"] == kind)
    changed = replace(case, config={**case.config, **settings})
    ids, want = built(changed, tmp_path / "model")
    usual = {key: not value if isinstance(value, bool) else 1e-5 for key, value in settings.items()}
    _, other = built(replace(case, config={**case.config, **usual}), tmp_path / "usual")
    assert difference(other, want) > 0.02
    cc.convert(tmp_path / "model", tmp_path / "model.gguf")
    cc.convert(tmp_path / "model.gguf", tmp_path / "back", to="safetensors")
    again = getattr(transformers(), case.cls).from_pretrained(tmp_path / "back", attn_implementation="eager").eval()
    assert difference(expected(again, ids, None), want) <= 1e-4
