"""Granite 3: its configurations."""

from candle_convert.tests.oracles.transformers import cases

GRANITE = {
    "attention_multiplier": 0.03,
    "embedding_multiplier": 12.0,
    "logits_scaling": 6.0,
    "residual_multiplier": 0.22,
}
CASES = [
    *cases("GraniteForCausalLM", "granite", granite=GRANITE),
    *cases(
        "GraniteMoeForCausalLM", "granitemoe", granitemoe={**GRANITE, "num_local_experts": 4, "num_experts_per_tok": 2}
    ),
]
