"""AFM: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = cases("ArceeForCausalLM", "arcee", arcee={"hidden_act": "relu2", "head_dim": 32})
