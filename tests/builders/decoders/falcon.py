"""Falcon 7B, 40B, 180B, RW and 2: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = cases(
    "FalconForCausalLM",
    "falcon",
    falcon={"num_kv_heads": None},
    falcon_40b={"new_decoder_architecture": True, "num_kv_heads": 2},
    falcon_11b={
        "new_decoder_architecture": True,
        "num_kv_heads": 2,
        "num_ln_in_parallel_attn": 1,
        "tie_word_embeddings": False,
    },
)
