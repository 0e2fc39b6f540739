"""Gemma 3n, text: its configurations."""

from candle_convert.tests.oracles.transformers import cases

GEMMA3N = {
    "head_dim": 16,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 96,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"],
    "num_hidden_layers": 4,
    "sliding_window": 8,
    "laurel_rank": 64,
    "final_logit_softcapping": 30.0,
}
CASES = cases(
    "Gemma3nForCausalLM",
    "gemma3n_text",
    gemma3n={**GEMMA3N, "num_kv_shared_layers": 2, "activation_sparsity_pattern": [0.9, 0.0, 0.5, 0.0]},
    gemma3n_own_keys={
        **GEMMA3N,
        "hidden_size_per_layer_input": 256,
        "intermediate_size": 4096,  # llama.cpp divides the variance by one less, which shows in short rows
        "num_kv_shared_layers": 0,
        "activation_sparsity_pattern": [0.95] * 4,
    },
)
WITHOUT_GGUF = cases(
    "Gemma3nForCausalLM",
    "gemma3n_text",
    gemma3n_ranks={
        **GEMMA3N,
        "altup_active_idx": 1,
        "altup_num_inputs": 3,
        "altup_correct_scale": False,
        "activation_sparsity_pattern": [0.0] * 4,
        "laurel_rank": 8,
        "num_kv_shared_layers": 1,
        "vocab_size_per_layer_input": 80,
    },
)
