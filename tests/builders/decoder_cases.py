"""Configurations of decoders that transformers builds, as hub repositories have them, and one in ChatGLM's own layout.

The modules of `decoders/` declare them: `CASES`, and `WITHOUT_GGUF` those of architectures and settings that
GGUF does not have.
"""

import importlib
import json
import pkgutil

import numpy as np
from candle_convert.tests.builders import decoders
from candle_convert.tests.builders.decoder_settings import GLM
from candle_convert.tests.oracles.transformers import cases, made

_FAMILIES = [
    importlib.import_module(f"{decoders.__name__}.{module.name}") for module in pkgutil.iter_modules(decoders.__path__)
]
DECODERS = [case for family in _FAMILIES for case in getattr(family, "CASES", ())]
WITHOUT_GGUF = [case for family in _FAMILIES for case in getattr(family, "WITHOUT_GGUF", ())]


def decoder(name):
    """The case of a name."""
    return next(case for case in (*DECODERS, *WITHOUT_GGUF) if case.name == name)


def written_chatglm(folder):
    """Write a GLM in the layout of ChatGLM's own files; the case and the model of transformers."""
    from safetensors.numpy import load_file, save_file

    case = cases(
        "GlmForCausalLM", "glm", chatglm={**GLM, "attention_bias": True, "rope_theta": 500000.0, "rms_norm_eps": 1e-5}
    )[0]
    reference = made(case, 0, folder)
    theirs = load_file(folder / "model.safetensors")
    renamed = {
        "embed_tokens": "embedding.word_embeddings",
        "norm": "encoder.final_layernorm",
        "o_proj": "self_attention.dense",
        "gate_up_proj": "mlp.dense_h_to_4h",
        "down_proj": "mlp.dense_4h_to_h",
        "lm_head": "output_layer",
    }
    files = {}
    for name, array in theirs.items():
        *path, part, kind = name.removeprefix("model.").split(".")
        place = f"encoder.layers.{path[1]}." if path else ""
        if part in ("q_proj", "k_proj", "v_proj"):
            files.setdefault(f"transformer.{place}self_attention.query_key_value.{kind}", {})[part] = array
        else:
            files[f"transformer.{place}{renamed.get(part, part)}.{kind}"] = array
    whole = {
        name: np.concatenate([value[part] for part in ("q_proj", "k_proj", "v_proj")])
        if isinstance(value, dict)
        else value
        for name, value in files.items()
    }
    save_file(whole, folder / "model.safetensors")
    (folder / "config.json").write_text(
        json.dumps(
            {
                "model_type": "chatglm",
                "architectures": ["ChatGLMModel"],
                "add_qkv_bias": True,
                "ffn_hidden_size": 96,
                "hidden_size": 64,
                "kv_channels": 16,
                "layernorm_epsilon": 1e-5,
                "multi_query_attention": True,
                "multi_query_group_num": 2,
                "num_attention_heads": 4,
                "num_layers": 3,
                "padded_vocab_size": 96,
                "rope_ratio": 50,
                "seq_length": 64,
                "rmsnorm": True,
            }
        )
    )
    return case, reference
