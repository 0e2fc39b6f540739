"""Llama and models of its architecture: its configurations."""

from candle_convert.tests.builders.decoder_settings import LLAMA3, YARN_X4
from candle_convert.tests.oracles.transformers import cases

CASES = [
    *cases(
        "LlamaForCausalLM",
        "llama",
        llama={"tie_word_embeddings": (True, False)},
        llama_bias={"attention_bias": True, "mlp_bias": True},
        llama_3={"rope_scaling": LLAMA3, "rope_theta": 500000.0, "head_dim": 32},
        llama_linear={"rope_scaling": {"type": "linear", "factor": 4.0}},
        llama_yarn={"rope_scaling": YARN_X4},
    ),
    *cases("MistralForCausalLM", "mistral", mistral={"sliding_window": 8, "head_dim": (16, 32)}),
]
