"""Llama 4, text: its configurations."""

from dataclasses import replace

from candle_convert.tests.oracles.transformers import cases

LLAMA4 = {
    "head_dim": 16,
    "intermediate_size_mlp": 128,
    "interleave_moe_layer_step": (1, 2),
    "num_experts_per_tok": (1, 2),
    "num_hidden_layers": 4,
    "num_local_experts": 4,
}
CASES = cases("Llama4ForCausalLM", "llama4_text", llama4=LLAMA4)
WITHOUT_GGUF = [
    *cases(
        "Llama4ForCausalLM",
        "llama4_text",
        chunked={**LLAMA4, "attention_chunk_size": 8, "attn_temperature_tuning": False, "moe_layers": [0, 1, 3]},
    ),
    *(
        replace(case, padded=False)  # transformers counts padding among the tokens
        for case in cases(
            "Llama4ForCausalLM",
            "llama4_text",
            tempered={**LLAMA4, "attention_chunk_size": 16, "floor_scale": 8, "use_qk_norm": False},
        )
    ),
]
