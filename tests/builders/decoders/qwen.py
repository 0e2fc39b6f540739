"""Qwen 1.5, 2, 2.5: its configurations."""

from candle_convert.tests.builders.decoder_settings import YARN_X4
from candle_convert.tests.oracles.transformers import cases

CASES = [
    *cases("Qwen2ForCausalLM", "qwen2", qwen2={"tie_word_embeddings": (True, False)}),
    *cases("Qwen3ForCausalLM", "qwen3", qwen3={"head_dim": 32}),
]
WITHOUT_GGUF = cases(
    "Qwen2ForCausalLM",
    "qwen2",
    qwen2_windows={"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1, "rope_scaling": YARN_X4},
)
