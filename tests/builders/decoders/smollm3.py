"""SmolLM3: its configurations."""

from candle_convert.tests.oracles.transformers import cases

WITHOUT_GGUF = cases("SmolLM3ForCausalLM", "smollm3", smollm3={"no_rope_layers": [1, 0, 1]})
