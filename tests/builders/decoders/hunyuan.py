"""Hunyuan, dense: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = cases(
    "HunYuanDenseV1ForCausalLM",
    "hunyuan_v1_dense",
    hunyuan_dense={"head_dim": 32, "tie_word_embeddings": True},
    hunyuan_alpha={"head_dim": 32, "rope_scaling": {"type": "dynamic", "alpha": 50.0, "factor": 1.0}},
)
