"""Configurations of decoders that transformers builds, as hub repositories have them."""

from candle_convert.tests.oracles.transformers import cases

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
GRANITE = {
    "attention_multiplier": 0.03,
    "embedding_multiplier": 12.0,
    "logits_scaling": 6.0,
    "residual_multiplier": 0.22,
}
DECODERS = [
    *cases(
        "LlamaForCausalLM",
        "llama",
        llama={"tie_word_embeddings": (True, False)},
        llama_bias={"attention_bias": True, "mlp_bias": True},
        llama_3={"rope_scaling": LLAMA3, "rope_theta": 500000.0, "head_dim": 32},
        llama_linear={"rope_scaling": {"type": "linear", "factor": 4.0}},
        llama_yarn={"rope_scaling": YARN},
    ),
    *cases("MistralForCausalLM", "mistral", mistral={"sliding_window": 8, "head_dim": (16, 32)}),
    *cases("GemmaForCausalLM", "gemma", gemma={"head_dim": (16, 32), "hidden_act": "gelu_pytorch_tanh"}),
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
    *cases(
        "Qwen2ForCausalLM",
        "qwen2",
        qwen2={"tie_word_embeddings": (True, False)},
        qwen2_windows={"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1, "rope_scaling": YARN},
    ),
    *cases("Qwen3ForCausalLM", "qwen3", qwen3={"head_dim": 32}),
    *cases("MixtralForCausalLM", "mixtral", mixtral={"num_local_experts": 4, "num_experts_per_tok": 2}),
    *cases(
        "Qwen2MoeForCausalLM",
        "qwen2_moe",
        qwen2_moe={
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 96,
        },
    ),
    *cases(
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        qwen3_moe={
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "head_dim": 32,
            "norm_topk_prob": (True, False),
            "mlp_only_layers": [1],
        },
    ),
    *cases("GraniteForCausalLM", "granite", granite=GRANITE),
    *cases(
        "GraniteMoeForCausalLM", "granitemoe", granitemoe={**GRANITE, "num_local_experts": 4, "num_experts_per_tok": 2}
    ),
    *cases("SmolLM3ForCausalLM", "smollm3", smollm3={"no_rope_layers": [1, 0, 1]}),
    *cases("OlmoForCausalLM", "olmo", olmo={"clip_qkv": 1.0}),
    *cases("Olmo2ForCausalLM", "olmo2", olmo2={"num_key_value_heads": (2, 4)}),
    *cases(
        "Olmo3ForCausalLM",
        "olmo3",
        olmo3={"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    ),
    *cases(
        "Phi3ForCausalLM",
        "phi3",
        phi3={"sliding_window": (8, None)},
        phi3_longrope={
            "max_position_embeddings": 512,
            "original_max_position_embeddings": 32,
            "rope_scaling": {
                "type": "longrope",
                "long_factor": [1 + 0.7 * i for i in range(8)],
                "short_factor": [1 + 0.05 * i for i in range(8)],
            },
        },
    ),
    *cases(
        "PhiForCausalLM",
        "phi",
        phi={"partial_rotary_factor": 0.5, "num_key_value_heads": None},
        phi_norms={"partial_rotary_factor": 0.5, "qk_layernorm": True},
    ),
    *cases(
        "StableLmForCausalLM",
        "stablelm",
        stablelm={"use_qkv_bias": (True, False)},
        stablelm_12b={"qk_layernorm": True, "use_parallel_residual": True},
    ),
    *cases("Starcoder2ForCausalLM", "starcoder2", starcoder2={"sliding_window": 8, "use_bias": True}),
    *cases(
        "GPTBigCodeForCausalLM",
        "gpt_bigcode",
        starcoder={"multi_query": (True, False), "n_inner": 96, "n_positions": 64},
    ),
    *cases("GPT2LMHeadModel", "gpt2", gpt2={"n_positions": 64, "n_inner": (None, 96)}),
    *cases(
        "FalconForCausalLM",
        "falcon",
        falcon={"num_kv_heads": None},
        falcon_40b={"new_decoder_architecture": True, "num_kv_heads": 2},
        falcon_11b={
            "new_decoder_architecture": True,
            "num_kv_heads": 2,
            "num_ln_in_parallel_attn": 1,
            "tie_word_embeddings": False,
        },
    ),
]
