"""Phi 1, 1.5 and 2: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = cases(
    "PhiForCausalLM",
    "phi",
    phi={"partial_rotary_factor": 0.5, "num_key_value_heads": None},
    phi_norms={"partial_rotary_factor": 0.5, "qk_layernorm": True},
)
