"""EXAONE 4: its configurations."""

from candle_convert.tests.builders.decoder_settings import LLAMA3
from candle_convert.tests.oracles.transformers import cases

WINDOWS = {"sliding_window": 8, "sliding_window_pattern": "LLG", "num_hidden_layers": 3}
CASES = cases(
    "Exaone4ForCausalLM",
    "exaone4",
    exaone4={**WINDOWS, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]},
    exaone4_small={"sliding_window": None, "rope_scaling": LLAMA3, "layer_types": ["full_attention"] * 3},
)
