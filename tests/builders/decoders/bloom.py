"""BLOOM and BLOOMZ: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = cases("BloomForCausalLM", "bloom", bloom={}, bloom_five_heads={"num_attention_heads": 5, "hidden_size": 80})
