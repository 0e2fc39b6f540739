"""Phi-3.5-MoE: its configurations."""

from candle_convert.tests.oracles.transformers import cases

LONGROPE = {
    "type": "longrope",
    "original_max_position_embeddings": 64,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.6, 1.9, 2.5],
    "long_factor": [1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
    "short_mscale": 1.25,
    "long_mscale": 1.25,
}
CASES = cases(
    "PhimoeForCausalLM",
    "phimoe",
    phimoe={
        "attention_bias": True,
        "lm_head_bias": True,
        "num_local_experts": (4, 6),
        "num_experts_per_tok": 2,
        "rope_scaling": (None, LONGROPE),
    },
)
