"""Ministral 3: its configurations."""

from candle_convert.tests.builders.decoder_settings import YARN_X8
from candle_convert.tests.oracles.transformers import cases

CASES = cases(
    "Ministral3ForCausalLM",
    "ministral3",
    ministral3={
        "head_dim": 32,
        "sliding_window": None,
        "rope_parameters": {
            **YARN_X8,
            "rope_type": "yarn",
            "rope_theta": 1e6,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
    },
)
