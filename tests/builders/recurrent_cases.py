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
RECURRENT = [replace(case, padded=case.name not in UNDEFINED) for case in _CASES]
