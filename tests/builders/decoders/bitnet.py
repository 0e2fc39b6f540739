"""BitNet b1.58 2B: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = cases(
    "BitNetForCausalLM",
    "bitnet",
    bitnet={"hidden_act": "relu2", "tie_word_embeddings": True},
    bitnet_silu={"hidden_act": "silu", "tie_word_embeddings": True},
)
