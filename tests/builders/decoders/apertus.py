"""Apertus: its configurations."""

from candle_convert.tests.builders.decoder_settings import LLAMA3
from candle_convert.tests.oracles.transformers import cases

CASES = cases("ApertusForCausalLM", "apertus", apertus={"hidden_act": "xielu", "rope_scaling": LLAMA3})
