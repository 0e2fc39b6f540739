"""DeepSeek V2, V2 Lite: its configurations."""

from candle_convert.tests.builders.decoder_settings import EXPERTS, YARN_X8
from candle_convert.tests.oracles.transformers import cases

DEEPSEEK = {
    **EXPERTS,
    "n_shared_experts": (1, 2),
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": (8, 16),
    "v_head_dim": 24,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-6,
    "num_nextn_predict_layers": 0,
}
CASES = [
    *cases(
        "DeepseekV2ForCausalLM",
        "deepseek_v2",
        deepseek_v2_lite={
            **DEEPSEEK,
            "q_lora_rank": None,
            "topk_method": "greedy",
            "rope_scaling": {**YARN_X8, "mscale": 0.707, "mscale_all_dim": 0.707},
        },
        deepseek_v2={
            **DEEPSEEK,
            "q_lora_rank": 24,
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 16.0,
        },
    ),
    *cases(
        "DeepseekV3ForCausalLM",
        "deepseek_v3",
        deepseek_v3={
            **DEEPSEEK,
            "q_lora_rank": 24,
            "scoring_func": "sigmoid",
            "topk_method": "noaux_tc",
            "n_group": 4,
            "topk_group": 2,
            "norm_topk_prob": True,
            "routed_scaling_factor": 2.5,
            "rope_scaling": {**YARN_X8, "mscale": 1.0, "mscale_all_dim": 1.0},
        },
    ),
]
