"""Nemotron 3 and 4, Minitron: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = cases("NemotronForCausalLM", "nemotron", nemotron={"hidden_act": "relu2", "norm_eps": 1e-5})
