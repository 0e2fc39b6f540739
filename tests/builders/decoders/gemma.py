"""Gemma 1, 2 and 3, text only: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = cases("GemmaForCausalLM", "gemma", gemma={"head_dim": (16, 32), "hidden_act": "gelu_pytorch_tanh"})
WITHOUT_GGUF = [
    *cases(
        "Gemma2ForCausalLM",
        "gemma2",
        gemma2={
            "head_dim": 16,
            "sliding_window": 8,
            "query_pre_attn_scalar": 24,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 4.0,
        },
    ),
    *cases(
        "Gemma3ForCausalLM",
        "gemma3_text",
        gemma3={
            "head_dim": 16,
            "sliding_window": 8,
            "sliding_window_pattern": 3,
            "query_pre_attn_scalar": 24,
            "rope_local_base_freq": 10000,
            "rope_theta": 1000000,
            "num_hidden_layers": 4,
        },
    ),
]
