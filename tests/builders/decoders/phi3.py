"""Phi-3, 3.5 and 4: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = cases(
    "Phi3ForCausalLM",
    "phi3",
    phi3={"sliding_window": (8, None)},
    phi3_longrope={
        "max_position_embeddings": 512,
        "original_max_position_embeddings": 32,
        "rope_scaling": {
            "type": "longrope",
            "long_factor": [1 + 0.7 * i for i in range(8)],
            "short_factor": [1 + 0.05 * i for i in range(8)],
        },
    },
)
