"""Models that llama.cpp does not load, or computes otherwise, although their GGUF files state all settings: a note says
so, and we compute what transformers computes."""

from dataclasses import replace

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.runtime.contract.weight_binding import architectures
from candle_convert.tests.builders import rwkv_checkpoints
from candle_convert.tests.builders.gguf_cases import LENGTH, built, one_of_each
from candle_convert.tests.oracles.libllama import NAME, Libllama
from candle_convert.tests.oracles.transformers import difference

torch = pytest.importorskip("torch")
BASES = {case.config["model_type"]: case for case in one_of_each()}
ENDS = ("jamba",)
"""Models with which libllama ends the process."""
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0 + i / 8 for i in range(8)],
    "long_factor": [2.0 + i / 2 for i in range(8)],
}


def written(kind, settings, folder):
    """Ids, the logits of transformers, notes on llama.cpp, and the GGUF file."""
    case = BASES[kind]
    arch = next(known.gguf[0] for known in architectures() if kind in known.model_types)
    ids, want = built(replace(case, config={**case.config, **settings}), folder / "model")
    keys = {"tokenizer.ggml.model": "no_vocab", f"{arch}.vocab_size": np.uint32(want.shape[-1])}
    path = folder / "model.gguf"
    report = cc.convert(folder / "model", path, metadata=keys)
    assert difference(models.load(path, threads=1).logits(ids), want) < 1e-4
    return ids, want, [note.message for note in report.notes if note.code == "W-GGUF-LLAMA-CPP"], path


@pytest.mark.parametrize(
    ("kind", "settings", "what"),
    [
        ("mamba", {"intermediate_size": 256}, "inner size"),
        ("jamba", {"mamba_expand": 4}, "inner size"),
        ("olmoe", {"num_key_value_heads": 2}, "shared KV heads"),
    ],
    ids=["mamba", "jamba", "olmoe"],
)
def test_models_that_llama_cpp_does_not_load(kind, settings, what, tmp_path):
    _, _, notes, path = written(kind, settings, tmp_path)
    assert any("does not load" in note and what in note for note in notes)
    if NAME and kind not in ENDS:
        with pytest.raises(AssertionError, match="does not load"):
            Libllama(path)


def test_sparse_activations_of_narrow_networks(tmp_path, monkeypatch):
    """libllama computes the logits that transformers has with the variance of a sample."""
    import transformers.models.gemma3n.modeling_gemma3n as gemma3n

    narrow = {"intermediate_size": 96}
    ids, want, notes, path = written("gemma3n_text", narrow, tmp_path)
    assert any("another cutoff in networks of up to 1,024 units" in note for note in notes)
    assert not written("gemma3n_text", {}, tmp_path / "wide")[2]
    if NAME:
        biased = torch.std

        def of_a_sample(x, dim, keepdim, unbiased):
            return biased(x, dim=dim, keepdim=keepdim, unbiased=not unbiased)

        case = BASES["gemma3n_text"]
        with monkeypatch.context() as patched:
            patched.setattr(gemma3n.torch, "std", of_a_sample)
            _, sample = built(replace(case, config={**case.config, **narrow}), tmp_path / "sample")
        theirs = Libllama(path)
        got = np.stack([theirs.advance([token]) for token in ids[0]])[None]
        theirs.close()
        assert difference(got, sample) < 1e-3 < difference(got, want)


def test_factors_that_llama_cpp_takes_by_its_context(tmp_path):
    settings = {"rope_scaling": LONGROPE, "original_max_position_embeddings": 48, "sliding_window": None}
    ids, want, notes, path = written("phi3", settings, tmp_path)
    assert any("a context of more than 48 tokens" in note for note in notes)
    if NAME:
        theirs = Libllama(path)
        assert difference(np.stack([theirs.advance([token]) for token in ids[0]])[None], want) > 0.1
        theirs.close()


@pytest.mark.parametrize(("version", "size"), [(6, 16), (6, 64), (7, 16), (7, 64)])
def test_heads_of_rwkv(version, size, tmp_path, monkeypatch):
    """The kernel of RWKV 7 has no remainder loop."""
    monkeypatch.setattr(rwkv_checkpoints, "SIZE", size)
    monkeypatch.setattr(rwkv_checkpoints, "WIDTH", rwkv_checkpoints.HEADS * size)
    (tmp_path / "model").mkdir()
    weights = rwkv_checkpoints.weights_of(version, 0)
    place = rwkv_checkpoints.write(tmp_path / "model", version, weights, "fla" if version == 7 else "hf")
    ids, path = np.random.default_rng(0).integers(0, rwkv_checkpoints.VOCABULARY, (1, LENGTH)), tmp_path / "model.gguf"
    size_key = {f"rwkv{version}.vocab_size": np.uint32(rwkv_checkpoints.VOCABULARY)}
    report = cc.convert(place, path, metadata={"tokenizer.ggml.model": "no_vocab", **size_key})
    differs = version == 7 and size < 64
    said = "not a multiple of 64" in " ".join(note.message for note in report.notes if note.code == "W-GGUF-LLAMA-CPP")
    assert said == differs
    if NAME and not differs:
        theirs = Libllama(path)
        got = np.stack([theirs.advance([token]) for token in ids[0]])[None]
        theirs.close()
        assert difference(got, models.load(place, threads=1).logits(ids)) < 1e-4
