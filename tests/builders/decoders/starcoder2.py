"""StarCoder2: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = cases("Starcoder2ForCausalLM", "starcoder2", starcoder2={"sliding_window": 8, "use_bias": True})
