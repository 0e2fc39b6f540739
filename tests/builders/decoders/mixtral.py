"""Mixtral: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = cases("MixtralForCausalLM", "mixtral", mixtral={"num_local_experts": 4, "num_experts_per_tok": 2})
