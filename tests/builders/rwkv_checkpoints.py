"""RWKV 5, 6 and 7 with random weights, under each of their published tensor names."""

import json
import re

import numpy as np
import pytest

VOCABULARY, HEADS, SIZE, LAYERS = 40, 2, 8, 2
WIDTH = HEADS * SIZE
LONG = {"k": "key", "v": "value", "r": "receptance", "g": "gate"}


def weights_of(version, seed):
    """Random weights under the author's names."""
    rng = np.random.default_rng(seed)

    def matrix(*shape):
        return (rng.normal(size=shape) / shape[-1] ** 0.5).astype(np.float32)

    def mixes(name, letters):
        return {f"{name}{letter}": rng.random((1, 1, WIDTH), np.float32) for letter in letters}

    def norm(name):
        return {f"{name}.weight": 1 + 0.2 * matrix(1, WIDTH)[0], f"{name}.bias": matrix(1, WIDTH)[0]}

    found = {
        "emb.weight": matrix(VOCABULARY, WIDTH),
        "head.weight": matrix(VOCABULARY, WIDTH),
        **norm("ln_out"),
        **norm("blocks.0.ln0"),
    }
    inner = {5: 32, 6: 32, 7: 64}[version]
    for i in range(LAYERS):
        att, ffn = f"blocks.{i}.att.", f"blocks.{i}.ffn."
        found |= {**norm(f"blocks.{i}.ln1"), **norm(f"blocks.{i}.ln2"), **norm(f"{att}ln_x")}
        found |= {f"{att}{name}.weight": matrix(WIDTH, WIDTH) for name in ("receptance", "key", "value", "output")}
        found |= {f"{ffn}key.weight": matrix(inner, WIDTH), f"{ffn}value.weight": matrix(WIDTH, inner)}
        if version < 7:
            found |= {f"{att}gate.weight": matrix(WIDTH, WIDTH), f"{ffn}receptance.weight": matrix(WIDTH, WIDTH)}
            found |= {f"{att}time_faaaa": matrix(HEADS, SIZE)}
        if version == 5:
            found |= {
                **mixes(f"{att}time_mix_", "kvrg"),
                **mixes(f"{ffn}time_mix_", "kr"),
                f"{att}time_decay": matrix(HEADS, SIZE),
            }
        elif version == 6:
            found |= {
                **mixes(f"{att}time_maa_", "xwkvrg"),
                **mixes(f"{ffn}time_maa_", "kr"),
                f"{att}time_decay": matrix(1, 1, WIDTH),
            }
            found |= {f"{att}time_maa_w1": matrix(WIDTH, 20), f"{att}time_maa_w2": matrix(5, 4, WIDTH)}
            found |= {f"{att}time_decay_w1": matrix(WIDTH, 6), f"{att}time_decay_w2": matrix(6, WIDTH)}
        else:
            found |= {**mixes(f"{att}x_", "rwkvag"), **mixes(f"{ffn}x_", "k"), f"{att}r_k": matrix(HEADS, SIZE)}
            found |= {f"{att}{name}": matrix(1, 1, WIDTH) for name in ("k_k", "k_a", "w0", "a0", "v0")}
            found |= {f"{att}{name}1": matrix(WIDTH, rank) for name, rank in zip("wavg", (5, 6, 7, 9), strict=True)}
            found |= {f"{att}{name}2": matrix(rank, WIDTH) for name, rank in zip("wavg", (5, 6, 7, 9), strict=True)}
    return found


def renamed(version, name, style):
    """A weight's name in the files of Hugging Face, or of candle."""
    if style == "fla":
        name = name.replace("emb.", "model.embeddings.").replace("ln_out", "model.norm").replace("head.", "lm_head.")
        name = (
            name.replace("blocks.0.ln0", "model.layers.0.pre_norm")
            .replace("blocks.", "model.layers.")
            .replace("ln1", "attn_norm")
        )
        name = name.replace("ln2", "ffn_norm").replace(".att.", ".attn.").replace("ln_x", "g_norm")
        for word, short in (("receptance", "r_proj"), ("key", "k_proj"), ("value", "v_proj"), ("output", "o_proj")):
            name = name.replace(f"attn.{word}", f"attn.{short}")
        return re.sub(
            r"attn\.([wavg])([012])$",
            lambda m: f"attn.{m[1]}_lora.lora.{('2.bias', '0.weight', '2.weight')[int(m[2])]}",
            name,
        )
    name = {"emb.weight": "rwkv.embeddings.weight"}.get(name, name)
    name = (
        re.sub(r"^(ln_out|blocks)", r"rwkv.\1", name)
        .replace(".att.", ".attention.")
        .replace(".ffn.", ".feed_forward.")
        .replace("ln0", "pre_ln")
    )
    if version == 5 or style == "candle":
        name = re.sub(r"time_m(?:ix|aa)_([kvrg])$", lambda m: f"time_mix_{LONG[m[1]]}", name)
    return name.replace("time_maa_", "time_mix_") if style == "candle" else name


def write(folder, version, w, style):
    if style == "author":
        torch = pytest.importorskip("torch")
        torch.save({name: torch.tensor(array) for name, array in w.items()}, folder / "model.pth")
        return folder / "model.pth"
    from safetensors.numpy import save_file

    given = {renamed(version, name, style): array for name, array in w.items()}
    for name in [name for name in given if "lora.lora" in name]:
        given[name] = np.ascontiguousarray(given[name].T) if given[name].ndim == 2 else given[name].reshape(-1)
    save_file(given, folder / "model.safetensors")
    (folder / "config.json").write_text(
        json.dumps(
            {
                "model_type": f"rwkv{version}",
                "hidden_size": WIDTH,
                "num_hidden_layers": LAYERS,
                "head_size": SIZE,
                "head_size_divisor": 8,
                "vocab_size": VOCABULARY,
                "intermediate_size": {5: 32, 6: 32, 7: 64}[version],
                "layer_norm_epsilon": 1e-5,
                "rescale_every": 6,
            }
        )
    )
    return folder
