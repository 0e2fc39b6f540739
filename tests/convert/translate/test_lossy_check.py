"""Settings that GGUF files have no key for: refused before anything is written, or told; and those that they have one
for."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.convert.translate import lossy_check
from candle_convert.runtime.base.errors import FormatError, UnsupportedError
from candle_convert.runtime.contract.architecture import Key
from candle_convert.tests.oracles.libllama import NAME, Libllama
from candle_convert.tests.oracles.transformers import Case, cases, difference, expected, made

GEMMA3 = {
    "head_dim": 16,
    "query_pre_attn_scalar": 16,
    "sliding_window": 8,
    "rope_local_base_freq": 10000,
    "rope_theta": 1e6,
    "num_hidden_layers": 3,
}
ONE_WHOLE = ["sliding_attention", "full_attention", "sliding_attention"]
TWO_WHOLE = ["full_attention", "sliding_attention", "full_attention"]
OSS = {
    "attention_bias": True,
    "head_dim": 32,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "sliding_window": 8,
    "rope_theta": 150000,
}
YARN = {"type": "yarn", "factor": 8, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1}
COHERE = {"sliding_window": 8, "logit_scale": 0.25, "tie_word_embeddings": True, "head_dim": 16}
LONGROPE = {
    "rope_type": "longrope", "short_factor": [1.0 + i / 8 for i in range(8)],
    "long_factor": [2.0 + i / 8 for i in range(8)], "original_max_position_embeddings": 24,
}  # fmt: skip
REFUSED = [
    *cases(
        "Gemma2ForCausalLM", "gemma2", gemma2_scores={"head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 24}
    ),
    *cases("Gemma3ForCausalLM", "gemma3_text", gemma3_activation={**GEMMA3, "hidden_activation": "silu"}),
    *cases(
        "Qwen2ForCausalLM",
        "qwen2",
        qwen2_windows={"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    ),
    *cases("LlamaForCausalLM", "llama", llama_activation={"hidden_act": "gelu"}),
    *cases("GPT2LMHeadModel", "gpt2", gpt2_activation={"n_positions": 64, "activation_function": "relu"}),
    *cases(
        "FalconForCausalLM",
        "falcon",
        falcon_rw={"alibi": True, "parallel_attn": False, "multi_query": False, "bias": True},
    ),
    *cases("ApertusForCausalLM", "apertus", apertus_longrope={"rope_scaling": LONGROPE}),
    *cases("GptOssForCausalLM", "gpt_oss", gpt_oss_limit={**OSS, "layer_types": ONE_WHOLE, "swiglu_limit": 3.0}),
]
TOLD = [
    *cases(
        "GPTBigCodeForCausalLM",
        "gpt_bigcode",
        starcoder_gelu={"n_inner": 96, "n_positions": 64, "activation_function": "gelu"},
    ),
    *cases("LlamaForCausalLM", "llama", llama_dynamic={"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
    *cases(
        "GptOssForCausalLM",
        "gpt_oss",
        gpt_oss_range={**OSS, "layer_types": ONE_WHOLE, "rope_scaling": {**YARN, "truncate": False}},
    ),
]
SAID = [
    *cases(
        "Gemma2ForCausalLM",
        "gemma2",
        gemma2={"head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16, "layer_types": TWO_WHOLE},
    ),
    *cases(
        "Gemma3ForCausalLM",
        "gemma3_text",
        gemma3={**GEMMA3, "layer_types": ONE_WHOLE},
        gemma3_usual={**GEMMA3, "num_hidden_layers": 6},
    ),
    *cases("Cohere2ForCausalLM", "cohere2", cohere2={**COHERE, "layer_types": TWO_WHOLE}),
    *cases(
        "GptOssForCausalLM",
        "gpt_oss",
        gpt_oss={**OSS, "layer_types": TWO_WHOLE, "rope_scaling": {**YARN, "truncate": True}},
    ),
]


def written(case: Case, folder):
    """The model of transformers, and its directory."""
    place = folder / "model"
    place.mkdir()
    return made(case, 0, place), place


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_what_would_compute_something_else_is_refused(case, tmp_path):
    _, place = written(case, tmp_path)
    out = tmp_path / "out.gguf"
    with pytest.raises(UnsupportedError) as caught:
        cc.convert(place, out)
    assert caught.value.code in ("E-GGUF-SETTING", "E-ARCH-GGUF")
    assert not list(tmp_path.glob("out*"))
    cc.convert(place, tmp_path / "other.safetensors")


BETAS = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "beta_fast": 8.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    ("cls", "kind", "scaling", "said"),
    [
        ("LlamaForCausalLM", "llama", BETAS, "rope_scaling.beta_fast is 8.0, which files do not state"),
        ("Qwen2ForCausalLM", "qwen2", LLAMA3, "rope_scaling.type is 'llama3', but files imply 'default'"),
    ],
)
def test_what_differs_is_named(cls, kind, scaling, said, tmp_path):
    _, place = written(cases(cls, kind, scaled={"rope_scaling": scaling})[0], tmp_path)
    with pytest.raises(UnsupportedError, match="E-GGUF-SETTING") as caught:
        cc.convert(place, tmp_path / "out.gguf")
    assert caught.value.why.endswith(said)


def test_a_key_that_files_alone_imply_is_named():
    ours, theirs = {"type": "yarn", "factor": 4.0}, {"type": "yarn", "factor": 4.0, "truncate": False}
    said = lossy_check._difference(Key("scaling", "rope_scaling"), ours, theirs)
    assert said == "rope_scaling.truncate is not stated, but files imply False"


@pytest.mark.parametrize("case", TOLD, ids=lambda case: case.name)
def test_what_changes_little_is_told(case, tmp_path):
    reference, place = written(case, tmp_path)
    report = cc.convert(place, tmp_path / "out.gguf")
    assert "W-GGUF-SETTING" in [note.code for note in report.notes]
    ids = np.random.default_rng(0).integers(3, 96, (1, 12))
    closeness = 1.0 if case.name == "gpt_oss_range" else 0.01  # heads of 16 pairs have a range of 2 that is rounded
    assert (
        difference(models.load(tmp_path / "out.gguf", threads=1).logits(ids), expected(reference, ids, None))
        < closeness
    )


@pytest.mark.parametrize("case", SAID, ids=lambda case: case.name)
def test_windows_of_layers_are_said(case, tmp_path):
    reference, place = written(case, tmp_path)
    out = tmp_path / "out.gguf"
    arch = {"gemma3_text": "gemma3", "gpt_oss": "gpt-oss"}.get(case.config["model_type"], case.config["model_type"])
    report = cc.convert(place, out, metadata={"tokenizer.ggml.model": "no_vocab", f"{arch}.vocab_size": np.uint32(96)})
    assert "W-GGUF-SETTING" not in [note.code for note in report.notes]
    assert ("sliding_window_pattern" in " ".join(cc.open(out).metadata)) is ("layer_types" in case.config)
    ids = np.random.default_rng(0).integers(3, 96, (1, 30))
    want = expected(reference, ids, None)
    assert difference(models.load(out, threads=1).logits(ids), want) <= 3e-5
    back = tmp_path / "back"
    cc.convert(out, back, to="safetensors")
    assert difference(models.load(back, threads=1).logits(ids), want) <= 3e-5
    if NAME:
        theirs = Libllama(out)
        assert difference(np.stack([theirs.advance([token]) for token in ids[0]])[None], want) < 1e-3
        theirs.close()


def test_a_pattern_of_too_few_layers_is_refused(tmp_path):
    case = SAID[1]
    _, place = written(case, tmp_path)
    cc.convert(place, tmp_path / "out.gguf")
    graph = cc.open(tmp_path / "out.gguf")
    graph.metadata["gemma3.attention.sliding_window_pattern"] = np.array([True, False])
    with pytest.raises(FormatError) as caught:
        models.load(graph)
    assert caught.value.code == "E-ARCH-KEY"


def test_the_largest_gemmas_are_known_by_their_layers():
    """llama.cpp divides by the root of hidden / heads there, and of the heads' size elsewhere."""
    from candle_convert.runtime.contract.architecture import GGUF
    from candle_convert.runtime.contract.weight_binding import architectures, config_from

    for name, layers in (("gemma2", 46), ("gemma3", 62)):
        said = {
            "general.architecture": name,
            f"{name}.block_count": layers,
            f"{name}.embedding_length": 5376,
            f"{name}.attention.head_count": 32,
            f"{name}.attention.key_length": 128,
            f"{name}.feed_forward_length": 8,
        }
        architecture = next(each for each in architectures() if each.name == name)
        assert config_from(architecture, GGUF, said).query_scalar == 168
        assert config_from(architecture, GGUF, {**said, f"{name}.block_count": 26}).query_scalar == 128
