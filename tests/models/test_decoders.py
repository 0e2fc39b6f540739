"""Every decoder family against transformers: padding on both sides, lengths past windows and trained contexts, step by step with a cache."""

import numpy as np
import pytest
from candle_convert import models
from checkpoints import cases, expected, made, texts

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
CASES = [
    *cases(
        "LlamaForCausalLM", "llama",
        llama={"tie_word_embeddings": (True, False)},
        llama_bias={"attention_bias": True, "mlp_bias": True},
        llama_3={"rope_scaling": LLAMA3, "rope_theta": 500000.0, "head_dim": 32},
        llama_linear={"rope_scaling": {"type": "linear", "factor": 4.0}},
        llama_yarn={"rope_scaling": YARN},
    ),
    *cases("MistralForCausalLM", "mistral", mistral={"sliding_window": 8, "head_dim": (16, 32)}),
    *cases("GemmaForCausalLM", "gemma", gemma={"head_dim": (16, 32), "hidden_act": "gelu_pytorch_tanh"}),
    *cases("Gemma2ForCausalLM", "gemma2", gemma2={
        "head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 4.0}),
    *cases("Gemma3ForCausalLM", "gemma3_text", gemma3={
        "head_dim": 16, "sliding_window": 8, "sliding_window_pattern": 3, "query_pre_attn_scalar": 24, "rope_local_base_freq": 10000,
        "rope_theta": 1000000, "num_hidden_layers": 4}),
    *cases("Qwen2ForCausalLM", "qwen2", qwen2={"tie_word_embeddings": (True, False)}, qwen2_windows={
        "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1, "rope_scaling": YARN}),
    *cases("Qwen3ForCausalLM", "qwen3", qwen3={"head_dim": 32}),
]  # fmt: skip


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_as_transformers(case, seed, tmp_path):
    reference = made(case, seed, tmp_path)
    model = models.load(tmp_path, threads=1)
    for variant, (ids, mask) in texts(case, seed, reference).items():
        want = expected(reference, ids, mask)
        got = model.logits(ids, mask)
        got = got if mask is None else got * mask[..., None]
        assert np.abs(got - want).max() <= case.tolerance * np.abs(want).max(), variant
    if case.cached:
        ids = texts(case, seed, reference)["long"][0]
        whole = model.logits(ids)
        first, cache = model.step(ids[:, :5])
        steps = [first]
        for at in range(5, 20):
            step, cache = model.step(ids[:, at : at + 1], cache)
            steps.append(step)
        assert np.abs(np.concatenate(steps, axis=1) - whole[:, :20]).max() <= case.tolerance * np.abs(whole).max()
