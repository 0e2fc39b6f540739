"""Configurations of recurrent and state-space models that transformers builds."""

from dataclasses import replace

from candle_convert.tests.oracles.transformers import cases

MAMBA = {
    "state_size": 8,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "layer_norm_epsilon": 1e-5,
    "conv_kernel": 4,
    "expand": 2,
}
GRANITE_HYBRID = {
    "layer_types": ["mamba", "attention", "mamba"],
    "mamba_d_head": 32,
    "mamba_d_state": 8,
    "mamba_n_groups": (1, 2),
    "mamba_n_heads": 4,
    "mamba_chunk_size": 8,
    "shared_intermediate_size": 64,
    "attention_multiplier": 0.1,
    "embedding_multiplier": 3.0,
    "logits_scaling": 4.0,
    "residual_multiplier": 0.5,
    "tie_word_embeddings": True,
}
FALCON_MULTIPLIERS = {
    "attention_in_multiplier": 1.1,
    "attention_out_multiplier": 0.9,
    "embedding_multiplier": 2.0,
    "key_multiplier": 0.5,
    "lm_head_multiplier": 0.25,
    "mlp_multipliers": [0.75, 0.5],
    "ssm_in_multiplier": 1.25,
    "ssm_multipliers": [0.75, 0.25, 0.5, 0.5, 0.375],
    "ssm_out_multiplier": 0.75,
}
GATED_DELTA = {
    "head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": (2, 4),
    "linear_value_head_dim": 16,
    "num_hidden_layers": 4,
}
_CASES = [
    *cases(
        "MambaForCausalLM",
        "mamba",
        mamba={**MAMBA, "time_step_rank": (4, "auto"), "use_bias": (False, True), "use_conv_bias": (True, False)},
    ),
    *cases(
        "FalconMambaForCausalLM",
        "falcon_mamba",
        falcon_mamba={**MAMBA, "mixer_rms_eps": 1e-3, "tie_word_embeddings": False},
    ),
    *cases(
        "Mamba2ForCausalLM",
        "mamba2",
        mamba2={
            **MAMBA,
            "num_heads": 8,
            "head_dim": 16,
            "n_groups": (1, 2),
            "chunk_size": 8,
            "tie_word_embeddings": False,
        },
        mamba2_limits={
            **MAMBA,
            "num_heads": 4,
            "head_dim": 32,
            "n_groups": 2,
            "chunk_size": 16,
            "time_step_limit": [0.01, 0.6],
        },
    ),
    *cases(
        "RecurrentGemmaForCausalLM",
        "recurrent_gemma",
        recurrent_gemma={
            "num_key_value_heads": 1,
            "attention_window_size": 8,
            "num_hidden_layers": 4,
            "intermediate_size": 192,
            "logits_soft_cap": 4.0,
        },
    ),
    *cases(
        "Lfm2ForCausalLM",
        "lfm2",
        lfm2={
            "norm_eps": 1e-5,
            "full_attn_idxs": [1],
            "block_multiple_of": 32,
            "block_auto_adjust_ff_dim": (True, False),
            "conv_bias": (False, True),
        },
    ),
    *cases(
        "JambaForCausalLM",
        "jamba",
        jamba={
            "attn_layer_offset": 1,
            "attn_layer_period": (2, 3),
            "expert_layer_offset": 1,
            "expert_layer_period": 2,
            "mamba_d_state": 8,
            "mamba_dt_rank": (8, "auto"),
            "num_experts": (4, 6),
            "num_hidden_layers": 4,
        },
    ),
    *cases(
        "GraniteMoeHybridForCausalLM",
        "granitemoehybrid",
        granite_hybrid={**GRANITE_HYBRID, "num_local_experts": (4, 6), "num_experts_per_tok": 2},
        granite_hybrid_dense={
            **GRANITE_HYBRID,
            "num_local_experts": 0,
            "num_experts_per_tok": 0,
            "position_embedding_type": "rope",
            "intermediate_size": 64,
        },
    ),
    *cases(
        "FalconH1ForCausalLM",
        "falcon_h1",
        falcon_h1={
            "head_dim": 32,
            "mamba_d_state": 8,
            "mamba_d_ssm": 64,
            "mamba_d_head": 16,
            "mamba_n_heads": 4,
            "mamba_n_groups": 2,
            "mamba_chunk_size": 8,
            "mamba_rms_norm": (True, False),
            "mamba_norm_before_gate": False,
            "tie_word_embeddings": True,
            **FALCON_MULTIPLIERS,
        },
    ),
    *cases(
        "Qwen3NextForCausalLM",
        "qwen3_next",
        qwen3_next={
            **GATED_DELTA,
            "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
            "moe_intermediate_size": 32,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "shared_expert_intermediate_size": 48,
        },
    ),
    *cases(
        "Qwen3_5ForCausalLM",
        "qwen3_5_text",
        qwen3_5={
            **GATED_DELTA,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 1, 1]},
        },
    ),
    *(
        replace(case, base={"vocab_size": 96})
        for case in cases(
            "MptForCausalLM",
            "mpt",
            mpt={
                "d_model": 64,
                "n_layers": 2,
                "n_heads": (4, 8),
                "max_seq_len": 64,
                "attn_config": {"alibi": True, "clip_qkv": 2.0, "attn_type": "multihead_attention"},
            },
        )
    ),
]
UNDEFINED = ("recurrent_gemma",)
"""Models whose padding transformers lets into the states."""
BEYOND_GGUF = ("mamba2_limits", "recurrent_gemma")
NOISY = ("qwen3_next", "qwen3_5")
"""Models whose chunks of tokens transformers computes with larger rounding errors than tokens one by one."""
RECURRENT = [
    replace(case, padded=case.name not in UNDEFINED, tolerance=2e-4 if case.name in NOISY else case.tolerance)
    for case in _CASES
]
