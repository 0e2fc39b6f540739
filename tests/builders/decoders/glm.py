"""GLM-4 in three checkpoint layouts, ChatGLM 2 and 3, CodeGeeX4: its configurations."""

from candle_convert.tests.builders.decoder_settings import GLM
from candle_convert.tests.oracles.transformers import cases

CASES = [
    *cases("GlmForCausalLM", "glm", glm=GLM),
    *cases("Glm4ForCausalLM", "glm4", glm4={**GLM, "head_dim": (16, 32)}),
]
