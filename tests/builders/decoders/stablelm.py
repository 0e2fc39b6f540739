"""StableLM 3B 4E1T, StableLM 2 and Stable Code: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = cases(
    "StableLmForCausalLM",
    "stablelm",
    stablelm={"use_qkv_bias": (True, False)},
    stablelm_12b={"qk_layernorm": True, "use_parallel_residual": True},
)
