"""Settings of the language models of Qwen's vision-language models: logits of transformers from the directory and from
the GGUF file, and those of libllama, unless they are refused or noted."""

import json

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert import models
from candle_convert.tests.builders import patch_models
from candle_convert.tests.oracles.libllama import NAME, Libllama
from candle_convert.tests.oracles.transformers import difference

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
WINDOW = {"sliding_window": 5, "use_sliding_window": True}
KINDS = ["full_attention", "sliding_attention", "full_attention"]
SETTINGS = {
    "eps": {"rms_norm_eps": 0.05},
    "tied": {"tie_word_embeddings": True},
    "sections": {"mrope_section": [1, 4, 3]},
    "theta": {"rope_theta": 300.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "window": {"sliding_window": 5},
    "late windows": {**WINDOW, "max_window_layers": 1},
    "usual windows": WINDOW,
    "layers": {**WINDOW, "layer_types": KINDS},
}
ROPE = ("mrope_section", "rope_type", "factor", "original_max_position_embeddings", "rope_theta")
OURS, BOUND = 1e-5, 2e-3


@pytest.mark.sampled(8)
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("family", FAMILIES)
def test_settings_are_computed_or_said(family, setting, tmp_path, monkeypatch):
    name, marks, text, vision = patch_models.FAMILIES[family]
    own = SETTINGS[setting]
    rope = {**text["rope_parameters"], **{key: value for key, value in own.items() if key in ROPE}}
    text = {**text, **{key: value for key, value in own.items() if key not in ROPE}, "rope_parameters": rope}
    sized = {"window_size": 112} if "window_size" in vision else {}  # llama.cpp has windows of 112 pixels alone
    monkeypatch.setitem(patch_models.FAMILIES, family, (name, marks, text, {**vision, **sized}))
    (tmp_path / "hf").mkdir()
    model = patch_models.patch_folder(family, tmp_path / "hf")[0]
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    config["text_config"] |= text
    (tmp_path / "hf" / "config.json").write_text(json.dumps(config))
    model = type(model).from_pretrained(tmp_path / "hf", attn_implementation="eager").eval()
    ids = np.random.default_rng(0).integers(30, 90, (1, 30))
    with torch.no_grad():
        want = model(input_ids=torch.tensor(ids)).logits.numpy()
    assert difference(models.load(tmp_path / "hf", threads=1)(input_ids=ids)["logits"], want) < OURS
    path = tmp_path / "m.gguf"
    try:
        notes = cc.convert(tmp_path / "hf", path).notes
    except cc.UnsupportedError as error:
        assert error.code == "E-GGUF-SETTING", error
        assert not path.exists()
        return
    assert difference(models.load(path, threads=1)(input_ids=ids)["logits"], want) < OURS
    if NAME and not any("llama.cpp" in note.message for note in notes):
        theirs = Libllama(path)
        logits = np.stack([theirs.advance([token]) for token in ids[0]])[None]
        theirs.close()
        assert difference(logits, want) < BOUND
