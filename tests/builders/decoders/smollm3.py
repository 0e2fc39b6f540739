"""SmolLM3: its configurations."""

from candle_convert.tests.oracles.transformers import cases

WITHOUT_GGUF = cases(
    "SmolLM3ForCausalLM",
    "smollm3",
    smollm3={"no_rope_layers": [1, 0, 1]},
    smollm3_windows={"no_rope_layers": [1, 0, 1], "sliding_window": 9, "use_sliding_window": True},
    smollm3_window_not_used={"no_rope_layers": [1, 0, 1], "sliding_window": 9},
)
