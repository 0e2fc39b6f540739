"""Gemma 4, text: its configurations."""

from candle_convert.tests.oracles.transformers import cases

GEMMA4 = {
    "head_dim": 16,
    "global_head_dim": 32,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "num_hidden_layers": 4,
    "sliding_window": 8,
    "vocab_size_per_layer_input": 96,
}
CASES = cases(
    "Gemma4ForCausalLM",
    "gemma4_text",
    gemma4={**GEMMA4, "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 2, "use_double_wide_mlp": True},
    gemma4_experts={
        **GEMMA4,
        "hidden_size_per_layer_input": 0,
        "enable_moe_block": True,
        "num_experts": 6,
        "top_k_experts": 2,
        "moe_intermediate_size": 48,
    },
    gemma4_same_values={
        **GEMMA4,
        "hidden_size_per_layer_input": 0,
        "attention_k_eq_v": True,
        "num_global_key_value_heads": 1,
        "final_logit_softcapping": 5.0,
    },
)
