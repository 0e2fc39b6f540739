"""Models that lack weights which llama.cpp's loader insists on: it loads their GGUF files and computes the logits of
transformers."""

from dataclasses import replace

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.runtime.contract.weight_binding import architectures
from candle_convert.tests.builders.gguf_cases import built, one_of_each
from candle_convert.tests.oracles.libllama import NAME, Libllama
from candle_convert.tests.oracles.transformers import difference

pytest.importorskip("torch")
BASES = {case.config["model_type"]: case for case in one_of_each()}
WITHOUT_BIAS = {
    "attention_bias": ("gpt_neox", "gpt_oss"), "use_bias": ("starcoder2",), "use_conv_bias": ("mamba", "mamba2"),
    "mamba_conv_bias": ("falcon_h1", "granitemoehybrid", "jamba"),
}  # fmt: skip
"""By the key of config.json that is false: model types."""
CHANGES = [
    *((kind, "tie_word_embeddings", True) for kind in BASES),
    *((kind, key, False) for key, kinds in WITHOUT_BIAS.items() for kind in kinds),
]
BOUND = 1e-3
"""libllama computes GELU by a table of f16."""
OTHERWISE = ("phimoe",)
"""Models that llama.cpp computes otherwise, which is noted."""


@pytest.mark.sampled(13)
@pytest.mark.parametrize(("kind", "key", "value"), CHANGES, ids=lambda value: str(value))
def test_llama_cpp_loads_models_without(kind, key, value, tmp_path):
    case = replace(BASES[kind], config={**BASES[kind].config, key: value})
    computed = built(case, tmp_path / "model")
    if computed is None:
        pytest.skip("transformers does not compute it")
    ids, logits = computed
    arch = next(known.gguf[0] for known in architectures() if kind in known.model_types)
    keys = {"tokenizer.ggml.model": "no_vocab", f"{arch}.vocab_size": np.uint32(logits.shape[-1])}
    path = tmp_path / "model.gguf"
    try:
        report = cc.convert(tmp_path / "model", path, metadata=keys, tied="dedupe")
    except cc.UnsupportedError as error:
        assert error.code == "E-GGUF-SETTING"
        return
    assert difference(models.load(path, threads=1).logits(ids), logits) < 1e-4
    assert (kind in OTHERWISE) == any(note.code == "W-GGUF-LLAMA-CPP" for note in report.notes)
    if NAME:
        theirs = Libllama(path)
        got = np.stack([theirs.advance([token]) for token in ids[0]])[None]
        theirs.close()
        assert kind in OTHERWISE or difference(got, logits) < BOUND


@pytest.mark.parametrize("kind", ["phi", "gptj", "phimoe"])
def test_a_tied_head_keeps_its_bias(kind, tmp_path):
    from candle_convert.tests.builders.decoder_cases import DECODERS, WITHOUT_GGUF

    case = next(case for case in (*DECODERS, *WITHOUT_GGUF) if case.config["model_type"] == kind)
    ids, logits = built(replace(case, config={**case.config, "tie_word_embeddings": True}), tmp_path)
    assert "lm_head.weight" not in cc.open(tmp_path)
    assert difference(models.load(tmp_path, threads=1).logits(ids), logits) < 1e-4
