"""Configurations of later decoders that transformers builds, and a checkpoint as ChatGLM names it."""

import json
from dataclasses import replace

import numpy as np
from candle_convert.tests.oracles.transformers import cases, made

GLM = {"partial_rotary_factor": 0.5, "attention_bias": (True, False), "head_dim": 16}
YARN = {"type": "yarn", "factor": 8, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1}
EXPERTS = {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48, "first_k_dense_replace": 1}
DEEPSEEK = {
    **EXPERTS,
    "n_shared_experts": (1, 2),
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": (8, 16),
    "v_head_dim": 24,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-6,
    "num_nextn_predict_layers": 0,
}
OSS = {
    "attention_bias": True,
    "head_dim": 32,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "sliding_window": 8,
    "num_local_experts": (4, 6),
    "num_experts_per_tok": 2,
    "rope_theta": 150000,
}
LLAMA4 = {
    "head_dim": 16,
    "intermediate_size_mlp": 128,
    "interleave_moe_layer_step": (1, 2),
    "num_experts_per_tok": (1, 2),
    "num_hidden_layers": 4,
    "num_local_experts": 4,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
WINDOWS = {"sliding_window": 8, "sliding_window_pattern": "LLG", "num_hidden_layers": 3}
LONGROPE = {
    "type": "longrope",
    "original_max_position_embeddings": 64,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.6, 1.9, 2.5],
    "long_factor": [1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
    "short_mscale": 1.25,
    "long_mscale": 1.25,
}
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
GEMMA4 = {
    "head_dim": 16,
    "global_head_dim": 32,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "num_hidden_layers": 4,
    "sliding_window": 8,
    "vocab_size_per_layer_input": 96,
}
LATER_DECODERS = [
    *cases("GlmForCausalLM", "glm", glm=GLM),
    *cases("Glm4ForCausalLM", "glm4", glm4={**GLM, "head_dim": (16, 32)}),
    *cases(
        "Glm4MoeForCausalLM",
        "glm4_moe",
        glm4_moe={
            **GLM,
            **EXPERTS,
            "n_shared_experts": 1,
            "n_group": 1,
            "topk_group": 1,
            "routed_scaling_factor": 1.5,
            "norm_topk_prob": True,
            "use_qk_norm": (True, False),
            "num_nextn_predict_layers": 0,
        },
    ),
    *cases(
        "DeepseekV2ForCausalLM",
        "deepseek_v2",
        deepseek_v2_lite={
            **DEEPSEEK,
            "q_lora_rank": None,
            "topk_method": "greedy",
            "rope_scaling": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707},
        },
        deepseek_v2={
            **DEEPSEEK,
            "q_lora_rank": 24,
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 16.0,
        },
    ),
    *cases("GptOssForCausalLM", "gpt_oss", gpt_oss={**OSS, "rope_scaling": {**YARN, "truncate": True}}),
    *cases("Llama4ForCausalLM", "llama4_text", llama4=LLAMA4),
    *cases(
        "Gemma4ForCausalLM",
        "gemma4_text",
        gemma4={**GEMMA4, "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 2, "use_double_wide_mlp": True},
        gemma4_same_values={
            **GEMMA4,
            "hidden_size_per_layer_input": 0,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "final_logit_softcapping": 5.0,
        },
    ),
    *cases(
        "Gemma3nForCausalLM",
        "gemma3n_text",
        gemma3n={**GEMMA3N, "num_kv_shared_layers": 2, "activation_sparsity_pattern": [0.9, 0.0, 0.5, 0.0]},
        gemma3n_own_keys={
            **GEMMA3N,
            "hidden_size_per_layer_input": 256,
            "num_kv_shared_layers": 0,
            "activation_sparsity_pattern": [0.95] * 4,
        },
    ),
    *cases("ArceeForCausalLM", "arcee", arcee={"hidden_act": "relu2", "head_dim": 32}),
    *cases(
        "SeedOssForCausalLM", "seed_oss", seed_oss={"attention_bias": True, "attention_out_bias": False, "head_dim": 32}
    ),
    *cases(
        "GPTNeoXForCausalLM",
        "gpt_neox",
        gpt_neox={"rotary_pct": 0.25, "use_parallel_residual": (True, False), "tie_word_embeddings": False},
    ),
    *cases(
        "CohereForCausalLM",
        "cohere",
        cohere={"use_qk_norm": (True, False), "logit_scale": 0.25, "tie_word_embeddings": True},
    ),
    *cases(
        "Cohere2ForCausalLM",
        "cohere2",
        cohere2={
            "sliding_window": 8,
            "sliding_window_pattern": 4,
            "logit_scale": 0.25,
            "tie_word_embeddings": True,
            "head_dim": 16,
            "num_hidden_layers": 4,
        },
    ),
    *cases(
        "Ministral3ForCausalLM",
        "ministral3",
        ministral3={
            "head_dim": 32,
            "sliding_window": None,
            "rope_parameters": {
                **YARN,
                "rope_type": "yarn",
                "rope_theta": 1e6,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.1,
            },
        },
    ),
    *cases("GPTJForCausalLM", "gptj", gptj={"rotary_dim": 8, "tie_word_embeddings": False}),
    *cases("BloomForCausalLM", "bloom", bloom={}, bloom_five_heads={"num_attention_heads": 5, "hidden_size": 80}),
    *cases(
        "OlmoeForCausalLM",
        "olmoe",
        olmoe={"num_experts": (6, 8), "num_experts_per_tok": 2, "norm_topk_prob": False, "num_key_value_heads": 4},
    ),
    *cases(
        "PhimoeForCausalLM",
        "phimoe",
        phimoe={
            "attention_bias": True,
            "lm_head_bias": True,
            "num_local_experts": (4, 6),
            "num_experts_per_tok": 2,
            "rope_scaling": (None, LONGROPE),
        },
    ),
    *cases("Ernie4_5ForCausalLM", "ernie4_5", ernie4_5={"head_dim": 16, "use_bias": False, "rope_theta": 500000.0}),
    *cases("NemotronForCausalLM", "nemotron", nemotron={"hidden_act": "relu2", "norm_eps": 1e-5}),
    *cases(
        "Exaone4ForCausalLM",
        "exaone4",
        exaone4={**WINDOWS, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]},
        exaone4_small={"sliding_window": None, "rope_scaling": LLAMA3, "layer_types": ["full_attention"] * 3},
    ),
    *cases(
        "HunYuanDenseV1ForCausalLM",
        "hunyuan_v1_dense",
        hunyuan_dense={"head_dim": 32, "tie_word_embeddings": True},
        hunyuan_alpha={"head_dim": 32, "rope_scaling": {"type": "dynamic", "alpha": 50.0, "factor": 1.0}},
    ),
    *cases(
        "BitNetForCausalLM",
        "bitnet",
        bitnet={"hidden_act": "relu2", "tie_word_embeddings": True},
        bitnet_silu={"hidden_act": "silu", "tie_word_embeddings": True},
    ),
    *cases("ApertusForCausalLM", "apertus", apertus={"hidden_act": "xielu", "rope_scaling": LLAMA3}),
    *cases(
        "DeepseekV3ForCausalLM",
        "deepseek_v3",
        deepseek_v3={
            **DEEPSEEK,
            "q_lora_rank": 24,
            "scoring_func": "sigmoid",
            "topk_method": "noaux_tc",
            "n_group": 4,
            "topk_group": 2,
            "norm_topk_prob": True,
            "routed_scaling_factor": 2.5,
            "rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
        },
    ),
]
WITHOUT_GGUF = [
    *cases(
        "OPTForCausalLM",
        "opt",
        opt={"ffn_dim": 96, "word_embed_proj_dim": 64},
        opt_350m={"ffn_dim": 96, "word_embed_proj_dim": 32, "do_layer_norm_before": False},
        galactica={
            "ffn_dim": 96,
            "enable_bias": False,
            "layer_norm_elementwise_affine": False,
            "activation_function": "gelu",
        },
    ),
    *cases("HeliumForCausalLM", "helium", helium={"head_dim": 16, "rms_norm_eps": 1e-8}),
    *cases(
        "PersimmonForCausalLM",
        "persimmon",
        persimmon={"hidden_act": "relu2", "qk_layernorm": (True, False), "partial_rotary_factor": 0.5},
    ),
]
"""Decoders of architectures that llama.cpp does not have."""
CLAMPED = cases(
    "GptOssForCausalLM", "gpt_oss", clamped={**OSS, "rope_scaling": {**YARN, "truncate": False}, "swiglu_limit": 0.7}
)
CHUNKED = [
    *cases(
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
    ),
    *cases(
        "Llama4ForCausalLM",
        "llama4_text",
        chunked={**LLAMA4, "attention_chunk_size": 8, "attn_temperature_tuning": False, "moe_layers": [0, 1, 3]},
    ),
    *(
        replace(case, padded=False)  # transformers counts padding among the tokens
        for case in cases(
            "Llama4ForCausalLM",
            "llama4_text",
            tempered={**LLAMA4, "attention_chunk_size": 16, "floor_scale": 8, "use_qk_norm": False},
        )
    ),
]


def written_chatglm(folder):
    """Write a GLM in the layout of ChatGLM's own files; the case and the model of transformers."""
    from safetensors.numpy import load_file, save_file

    case = cases(
        "GlmForCausalLM", "glm", chatglm={**GLM, "attention_bias": True, "rope_theta": 500000.0, "rms_norm_eps": 1e-5}
    )[0]
    reference = made(case, 0, folder)
    theirs = load_file(folder / "model.safetensors")
    renamed = {
        "embed_tokens": "embedding.word_embeddings",
        "norm": "encoder.final_layernorm",
        "o_proj": "self_attention.dense",
        "gate_up_proj": "mlp.dense_h_to_4h",
        "down_proj": "mlp.dense_4h_to_h",
        "lm_head": "output_layer",
    }
    files = {}
    for name, array in theirs.items():
        *path, part, kind = name.removeprefix("model.").split(".")
        place = f"encoder.layers.{path[1]}." if path else ""
        if part in ("q_proj", "k_proj", "v_proj"):
            files.setdefault(f"transformer.{place}self_attention.query_key_value.{kind}", {})[part] = array
        else:
            files[f"transformer.{place}{renamed.get(part, part)}.{kind}"] = array
    whole = {
        name: np.concatenate([value[part] for part in ("q_proj", "k_proj", "v_proj")])
        if isinstance(value, dict)
        else value
        for name, value in files.items()
    }
    save_file(whole, folder / "model.safetensors")
    (folder / "config.json").write_text(
        json.dumps(
            {
                "model_type": "chatglm",
                "architectures": ["ChatGLMModel"],
                "add_qkv_bias": True,
                "ffn_hidden_size": 96,
                "hidden_size": 64,
                "kv_channels": 16,
                "layernorm_epsilon": 1e-5,
                "multi_query_attention": True,
                "multi_query_group_num": 2,
                "num_attention_heads": 4,
                "num_layers": 3,
                "padded_vocab_size": 96,
                "rope_ratio": 50,
                "seq_length": 64,
                "rmsnorm": True,
            }
        )
    )
    return case, reference
