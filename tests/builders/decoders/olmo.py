"""OLMo: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = [
    *cases("OlmoForCausalLM", "olmo", olmo={"clip_qkv": 1.0}),
    *cases("Olmo2ForCausalLM", "olmo2", olmo2={"num_key_value_heads": (2, 4)}),
    *cases(
        "Olmo3ForCausalLM",
        "olmo3",
        olmo3={"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    ),
]
