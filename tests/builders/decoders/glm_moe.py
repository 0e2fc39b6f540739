"""GLM-4.5, 4.6 and 4.5 Air: its configurations."""

from candle_convert.tests.builders.decoder_settings import EXPERTS, GLM
from candle_convert.tests.oracles.transformers import cases

CASES = cases(
    "Glm4MoeForCausalLM",
    "glm4_moe",
    glm4_moe={
        **GLM,
        **EXPERTS,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "routed_scaling_factor": 1.5,
        "norm_topk_prob": True,
        "use_qk_norm": (True, False),
        "num_nextn_predict_layers": 0,
    },
)
