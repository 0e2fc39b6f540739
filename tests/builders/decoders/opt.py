"""OPT: its configurations."""

from candle_convert.tests.oracles.transformers import cases

WITHOUT_GGUF = cases(
    "OPTForCausalLM",
    "opt",
    opt={"ffn_dim": 96, "word_embed_proj_dim": 64},
    opt_350m={"ffn_dim": 96, "word_embed_proj_dim": 32, "do_layer_norm_before": False},
    galactica={
        "ffn_dim": 96,
        "enable_bias": False,
        "layer_norm_elementwise_affine": False,
        "activation_function": "gelu",
    },
)
