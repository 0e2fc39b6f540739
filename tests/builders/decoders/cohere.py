"""Command R and Command R7B: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = [
    *cases(
        "CohereForCausalLM",
        "cohere",
        cohere={"use_qk_norm": (True, False), "logit_scale": 0.25, "tie_word_embeddings": True},
    ),
    *cases(
        "Cohere2ForCausalLM",
        "cohere2",
        cohere2={
            "sliding_window": 8,
            "sliding_window_pattern": 4,
            "logit_scale": 0.25,
            "tie_word_embeddings": True,
            "head_dim": 16,
            "num_hidden_layers": 4,
        },
    ),
]
