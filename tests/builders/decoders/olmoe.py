"""OLMoE: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = cases(
    "OlmoeForCausalLM",
    "olmoe",
    olmoe={"num_experts": (6, 8), "num_experts_per_tok": 2, "norm_topk_prob": False, "num_key_value_heads": 4},
)
