"""gpt-oss: its configurations."""

from candle_convert.tests.builders.decoder_settings import YARN_X8
from candle_convert.tests.oracles.transformers import cases

OSS = {
    "attention_bias": True,
    "head_dim": 32,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "sliding_window": 8,
    "num_local_experts": (4, 6),
    "num_experts_per_tok": 2,
    "rope_theta": 150000,
}
CASES = cases("GptOssForCausalLM", "gpt_oss", gpt_oss={**OSS, "rope_scaling": {**YARN_X8, "truncate": True}})
WITHOUT_GGUF = cases(
    "GptOssForCausalLM", "gpt_oss", clamped={**OSS, "rope_scaling": {**YARN_X8, "truncate": False}, "swiglu_limit": 0.7}
)
