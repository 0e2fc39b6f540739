"""A tiny checkpoint of every registered architecture that generates text."""

import functools
import json

import numpy as np
from candle_convert.runtime.contract.architecture import TEXT_GENERATION
from candle_convert.runtime.contract.weight_binding import architectures
from candle_convert.tests.builders import rwkv_checkpoints
from candle_convert.tests.builders.decoder_cases import DECODERS, WITHOUT_GGUF, written_chatglm
from candle_convert.tests.builders.recurrent_cases import RECURRENT
from candle_convert.tests.oracles.transformers import made


@functools.cache
def known():
    """The first case of each architecture by its name."""
    found = {}
    for case in (*DECODERS, *WITHOUT_GGUF, *RECURRENT):
        architecture = next(each for each in architectures() if case.config["model_type"] in each.model_types)
        found.setdefault(architecture.name, case)
    return found


def names():
    """Every architecture that generates text."""
    return [each.name for each in architectures() if each.tasks[0].name == TEXT_GENERATION]


def write(name, folder):
    """Write a checkpoint; the size of its vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    if name.startswith("rwkv"):
        version = int(name[-1])
        rwkv_checkpoints.write(
            folder, version, rwkv_checkpoints.weights_of(version, version), "fla" if version == 7 else "hf"
        )
        return rwkv_checkpoints.VOCABULARY
    if name == "chatglm":
        written_chatglm(folder)
        return 96
    if name == "phi_msft":
        _write_phi_msft(folder)
        return 96
    if name == "paddleocr_text":
        _write_paddleocr(folder)
    else:
        made(known()[name], 0, folder)
    return json.loads((folder / "config.json").read_text())["vocab_size"]


def _write_paddleocr(folder):
    """The text part of PaddleOCR-VL, which transformers has without a head: a Llama under another model type."""
    made(known()["llama"], 0, folder)
    config = json.loads((folder / "config.json").read_text())
    size = config["hidden_size"] // config["num_attention_heads"]
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "paddleocr_vl_text", "head_dim": size}))


def _write_phi_msft(folder):
    """Phi in the layout of its first revisions."""
    from safetensors.numpy import load_file, save_file

    made(known()["phi"], 0, folder)
    theirs = load_file(folder / "model.safetensors")
    parts = {"input_layernorm": "ln", "self_attn.dense": "mixer.out_proj", "mlp.fc1": "mlp.fc1", "mlp.fc2": "mlp.fc2"}
    ends = {
        "model.embed_tokens": "transformer.embd.wte",
        "model.final_layernorm": "lm_head.ln",
        "lm_head": "lm_head.linear",
    }
    files = {}
    for name, array in theirs.items():
        path, kind = name.rsplit(".", 1)
        layer, part = ([*path.split(".", 3), "", "", ""])[2:4]
        if path in ends:
            files[f"{ends[path]}.{kind}"] = array
        elif part in parts:
            files[f"transformer.h.{layer}.{parts[part]}.{kind}"] = array
        elif part == "self_attn.q_proj":
            rows = [theirs[name.replace("q_proj", f"{which}_proj")] for which in "qkv"]
            files[f"transformer.h.{layer}.mixer.Wqkv.{kind}"] = np.concatenate(rows)
    save_file(files, folder / "model.safetensors")
    (folder / "config.json").write_text(
        json.dumps(
            {
                "model_type": "phi-msft",
                "vocab_size": 96,
                "n_positions": 64,
                "n_embd": 64,
                "n_layer": 3,
                "n_inner": 96,
                "n_head": 4,
                "rotary_dim": 8,
                "layer_norm_epsilon": 1e-5,
                "activation_function": "gelu_new",
            }
        )
    )
