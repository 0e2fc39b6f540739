"""GPT-J: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = cases("GPTJForCausalLM", "gptj", gptj={"rotary_dim": 8, "tie_word_embeddings": False})
