"""Hyper-parameters that configurations of several decoder families share."""

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN_X4 = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
YARN_X8 = {"type": "yarn", "factor": 8, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1}
GLM = {"partial_rotary_factor": 0.5, "attention_bias": (True, False), "head_dim": 16}
EXPERTS = {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48, "first_k_dense_replace": 1}
