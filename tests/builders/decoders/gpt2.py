"""GPT-2: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = [
    *cases(
        "GPTBigCodeForCausalLM",
        "gpt_bigcode",
        starcoder={"multi_query": (True, False), "n_inner": 96, "n_positions": 64},
    ),
    *cases("GPT2LMHeadModel", "gpt2", gpt2={"n_positions": 64, "n_inner": (None, 96)}),
]
