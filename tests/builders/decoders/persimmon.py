"""Persimmon: its configurations."""

from candle_convert.tests.oracles.transformers import cases

WITHOUT_GGUF = cases(
    "PersimmonForCausalLM",
    "persimmon",
    persimmon={"hidden_act": "relu2", "qk_layernorm": (True, False), "partial_rotary_factor": 0.5},
)
