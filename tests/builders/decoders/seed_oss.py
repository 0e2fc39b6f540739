"""Seed-OSS: its configurations."""

from candle_convert.tests.oracles.transformers import cases

CASES = cases(
    "SeedOssForCausalLM", "seed_oss", seed_oss={"attention_bias": True, "attention_out_bias": False, "head_dim": 32}
)
