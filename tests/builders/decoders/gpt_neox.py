"""GPT-NeoX and Pythia: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = cases(
    "GPTNeoXForCausalLM",
    "gpt_neox",
    gpt_neox={"rotary_pct": 0.25, "use_parallel_residual": (True, False), "tie_word_embeddings": False},
)
