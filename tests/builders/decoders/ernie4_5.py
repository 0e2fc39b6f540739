"""ERNIE 4.5: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = cases("Ernie4_5ForCausalLM", "ernie4_5", ernie4_5={"head_dim": 16, "use_bias": False, "rope_theta": 500000.0})
WITHOUT_GGUF = cases("HeliumForCausalLM", "helium", helium={"head_dim": 16, "rms_norm_eps": 1e-8})
