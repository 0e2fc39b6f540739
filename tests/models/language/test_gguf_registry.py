"""Every architecture that is written as GGUF: libllama loads the file and computes transformers' logits, or a note says
that it does not."""

from dataclasses import replace

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.runtime.base.errors import FormatError, UnsupportedError
from candle_convert.runtime.contract.weight_binding import architectures
from candle_convert.tests.builders.decoder_cases import DECODERS, WITHOUT_GGUF
from candle_convert.tests.builders.gguf_cases import built
from candle_convert.tests.builders.recurrent_cases import RECURRENT
from candle_convert.tests.oracles.libllama import NAME, Libllama
from candle_convert.tests.oracles.transformers import difference

pytest.importorskip("torch")
BOUND = 2e-3
"""libllama computes GELU by a table of f16."""
WRITTEN = {kind: known for known in architectures() if known.gguf for kind in known.model_types}
CASES = {case.name: case for case in (*DECODERS, *WITHOUT_GGUF, *RECURRENT) if case.config["model_type"] in WRITTEN}

REFUSED = {"falcon_mamba", "mamba2_limits"}
"""Cases of other architectures with settings for which GGUF has no key."""


def written(case, folder):
    """Ids, transformers' logits, what is noted of llama.cpp, and the GGUF file; None where it is refused."""
    ids, want = built(case, folder / "model")
    arch, path = WRITTEN[case.config["model_type"]].gguf[0], folder / "model.gguf"
    keys = {"tokenizer.ggml.model": "no_vocab", f"{arch}.vocab_size": np.uint32(want.shape[-1])}
    try:
        report = cc.convert(folder / "model", path, metadata=keys)
    except (FormatError, UnsupportedError):
        assert case in WITHOUT_GGUF or case.name in REFUSED
        assert not path.exists()
        return None
    return ids, want, [note.message for note in report.notes if note.code == "W-GGUF-LLAMA-CPP"], path


@pytest.mark.sampled(13)
@pytest.mark.parametrize("name", CASES)
def test_libllama_agrees_or_a_note_says_why(name, tmp_path):
    found = written(CASES[name], tmp_path)
    if found is None:
        return
    ids, want, notes, path = found
    assert difference(models.load(path, threads=1).logits(ids), want) < 1e-3
    if NAME and not notes:
        theirs = Libllama(path)
        got = np.stack([theirs.advance([token]) for token in ids[0]])[None]
        theirs.close()
        assert difference(got, want) < BOUND


@pytest.mark.parametrize(("name", "said"), [("gptj", "does not load GPT-J"), ("deepseek_v2_lite", "26 or 27 layers")])
def test_models_that_llama_cpp_does_not_load(name, said, tmp_path):
    *_, notes, path = written(CASES[name], tmp_path)
    assert any(said in note for note in notes)
    if NAME:
        with pytest.raises(AssertionError, match="does not load"):
            Libllama(path)


@pytest.mark.parametrize("layers", [26, 27])
def test_numbers_of_layers_that_llama_cpp_loads(layers, tmp_path):
    """DeepSeek V2 Lite has 27."""
    case = CASES["deepseek_v2_lite"]
    deep = replace(case, config={**case.config, "num_hidden_layers": layers})
    ids, want, notes, path = written(deep, tmp_path)
    assert not notes
    if NAME:
        theirs = Libllama(path)
        got = np.stack([theirs.advance([token]) for token in ids[0]])[None]
        theirs.close()
        assert difference(got, want) < BOUND


def test_groups_of_experts_that_llama_cpp_chooses_otherwise(tmp_path):
    ids, want, notes, path = written(CASES["deepseek_v2"], tmp_path)
    assert any("chooses groups of experts" in note for note in notes)
    if NAME:
        theirs = Libllama(path)
        got = np.stack([theirs.advance([token]) for token in ids[0]])[None]
        theirs.close()
        assert difference(got, want) > BOUND
