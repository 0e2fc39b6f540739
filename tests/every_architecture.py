"""A tiny checkpoint of every registered architecture, from the cases of the model library's own tests."""

import functools
import importlib.util
import json
from pathlib import Path

import numpy as np
from candle_convert.runtime.binding import architectures
from checkpoints import made

MODELS = Path(__file__).parent / "models"


@functools.cache
def module(name):
    """A test module of the model library."""
    spec = importlib.util.spec_from_file_location(f"cases_of_{name}", MODELS / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@functools.cache
def known():
    """The first case of each architecture by its name."""
    found = {}
    for name in ("test_decoders", "test_later_decoders", "test_recurrent"):
        for case in module(name).CASES:
            architecture = next(each for each in architectures() if case.config["model_type"] in each.model_types)
            found.setdefault(architecture.name, case)
    return found


def names():
    """Every architecture."""
    return [architecture.name for architecture in architectures()]


def write(name, folder):
    """Write a checkpoint; the size of its vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    if name.startswith("rwkv"):
        version = int(name[-1])
        recurrent = module("test_rwkv")
        recurrent.write(folder, version, recurrent.weights_of(version, version), "fla" if version == 7 else "hf")
        return recurrent.VOCABULARY
    if name == "chatglm":
        module("test_later_decoders").written_chatglm(folder)
        return 96
    if name == "phi_msft":
        _write_phi_msft(folder)
        return 96
    made(known()[name], 0, folder)
    return json.loads((folder / "config.json").read_text())["vocab_size"]


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
