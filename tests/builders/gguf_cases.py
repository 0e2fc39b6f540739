"""A case of every model type that GGUF has, and what transformers computes of a case."""

from dataclasses import replace

import numpy as np
from candle_convert.runtime.contract.weight_binding import architectures
from candle_convert.tests.builders.decoder_cases import DECODERS, WITHOUT_GGUF
from candle_convert.tests.builders.recurrent_cases import RECURRENT
from candle_convert.tests.oracles.transformers import expected, made

REPLACED = {"exaone4": "exaone4_small", "gemma3n_text": "gemma3n_own_keys", "bitnet": "bitnet_silu"}
"""Cases that stand for a model, where libllama expects other sizes of the first."""
IGNORED_WINDOWS = ("mistral", "starcoder2")
"""Models that are compared without the windows of their cases, which libllama ignores."""
ELSEWHERE = ("deepseek_v2", "gptj")
"""Models that libllama runs with the published number of layers only, or not at all."""
GRANITE = {"attention_multiplier": 0.3, "embedding_multiplier": 1.5, "residual_multiplier": 0.8, "logits_scaling": 2.0}
TELLING = {
    "granite": GRANITE, "granitemoe": GRANITE,
    "gemma2": {"head_dim": 16, "query_pre_attn_scalar": 16},
    "gemma3_text": {
        "head_dim": 16, "query_pre_attn_scalar": 16, "num_hidden_layers": 6, "sliding_window_pattern": 6,
    },
    "smollm3": {"num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]},
    "qwen3_moe": {"mlp_only_layers": [], "decoder_sparse_step": 1, "norm_topk_prob": True},
    "falcon_mamba": {"mixer_rms_eps": 1e-5},
}  # fmt: skip
"""Settings of models with whose published multipliers attention hardly shows, and settings that GGUF has keys for."""
LENGTH = 30


def one_of_each():
    """A case of every model type that GGUF has."""
    types = {kind for architecture in architectures() if architecture.gguf for kind in architecture.model_types}
    found = {}
    for case in (*DECODERS, *RECURRENT, *WITHOUT_GGUF):
        kind = case.config["model_type"]
        if kind in types and kind not in ELSEWHERE and REPLACED.get(kind, case.name) == case.name:
            windows = {"sliding_window": None} if kind in IGNORED_WINDOWS else {}
            found.setdefault(kind, replace(case, config={**case.config, **windows, **TELLING.get(kind, {})}))
    return list(found.values())


def built(case, folder):
    """Ids, and the logits of a checkpoint in transformers; None for a configuration that transformers does not
    compute."""
    try:
        reference = made(case, 0, folder)
        ids = np.random.default_rng(0).integers(3, reference.config.vocab_size, (1, LENGTH))
        return ids, expected(reference, ids, None)
    except Exception:
        return None
