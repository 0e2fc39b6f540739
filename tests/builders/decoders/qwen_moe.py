"""Qwen 1.5, 2 and 3 mixtures of experts: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = [
    *cases(
        "Qwen2MoeForCausalLM",
        "qwen2_moe",
        qwen2_moe={
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 96,
        },
    )
]
WITHOUT_GGUF = [
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
    )
]
