"""Llama files from before GGUF and llama2.c files, of every version, written as each program wrote them."""

import functools
import struct

import gguf
import numpy as np
import pytest

WIDTH, INNER, LAYERS, HEADS, KV_HEADS, VOCABULARY, CONTEXT = 64, 96, 2, 4, 2, 300, 32
SIZE = WIDTH // HEADS
NAMES = {
    "attention.wq": "self_attn.q_proj",
    "attention.wk": "self_attn.k_proj",
    "attention.wv": "self_attn.v_proj",
    "attention.wo": "self_attn.o_proj",
    "feed_forward.w1": "mlp.gate_proj",
    "feed_forward.w2": "mlp.down_proj",
    "feed_forward.w3": "mlp.up_proj",
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
WORDS = [b" t", b"he", b" the", *(b"word%d" % i for i in range(VOCABULARY - 262))]
TOKENS = [b" \xe2\x81\x87 ", b"", b"", *(bytes([byte]) for byte in range(256)), *WORDS]


@functools.cache
def transformers_llama():
    """Transformers' model, and its weights as Meta names and orders them."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(
                torch.randn(parameter.shape) / 8 if parameter.ndim > 1 else 1 + 0.2 * torch.randn(parameter.shape)
            )
    held = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    found = {
        "tok_embeddings": held["model.embed_tokens.weight"],
        "norm": held["model.norm.weight"],
        "output": held["lm_head.weight"],
    }
    for i in range(LAYERS):
        for meta, name in NAMES.items():
            array = held[f"model.layers.{i}.{name}.weight"]
            heads = {"attention.wq": HEADS, "attention.wk": KV_HEADS}.get(meta)
            found[f"layers.{i}.{meta}"] = (
                array.reshape(heads, 2, SIZE // 2, -1).swapaxes(1, 2).reshape(array.shape) if heads else array
            )
    return model, found


def ggml(weights, magic, version, kind=gguf.GGMLQuantizationType.F32, heads=HEADS):
    """A file of llama.cpp's: unversioned, ggmf or ggjt."""
    out = magic + (b"" if version is None else struct.pack("<I", version))
    out += struct.pack(
        "<7i", VOCABULARY, WIDTH, 32, heads, LAYERS, SIZE, 0 if kind == gguf.GGMLQuantizationType.F32 else 7
    )
    for number, token in enumerate(TOKENS):
        out += (
            struct.pack("<i", len(token))
            + token
            + (b"" if version is None else struct.pack("<f", min(0, 259 - number)))
        )
    for name, array in weights.items():
        stored = kind if array.ndim == 2 else gguf.GGMLQuantizationType.F32
        full = f"{name}.weight".encode()
        out += (
            struct.pack("<3i", array.ndim, len(full), stored)
            + struct.pack(f"<{array.ndim}i", *array.shape[::-1])
            + full
        )
        out += bytes(-len(out) % 32) if magic == b"tjgg" else b""
        out += gguf.quants.quantize(np.ascontiguousarray(array), stored).tobytes()
    return out


def llama2c(weights, version, shared=False):
    """A file of llama2.c's; quantized in groups of 32 in version 2."""

    def stacked(*names):
        return [weights[f"layers.{i}.{name}"] for name in names for i in range(LAYERS)]

    attention, forward = list(NAMES)[:4], list(NAMES)[4:7]
    sizes = (WIDTH, INNER, LAYERS, HEADS, KV_HEADS, VOCABULARY if shared or version else -VOCABULARY, CONTEXT)
    last = [] if shared else [weights["output"]]
    if version == 0:
        order = [
            weights["tok_embeddings"],
            *stacked("attention_norm", *attention, "ffn_norm", *forward),
            weights["norm"],
            np.zeros((2, CONTEXT, SIZE // 2), np.float32),
            *last,
        ]
        return struct.pack("<7i", *sizes) + b"".join(np.ascontiguousarray(array).tobytes() for array in order)
    head = (
        b"24ka"
        + struct.pack("<8i", version, *sizes)
        + struct.pack("<B", shared)
        + (struct.pack("<i", 32) if version == 2 else b"")
    )
    norms, matrices = (
        [*stacked("attention_norm", "ffn_norm"), weights["norm"]],
        [weights["tok_embeddings"], *stacked(*attention, *forward), *last],
    )
    out = head.ljust(256, b"\0") + b"".join(array.tobytes() for array in norms)
    for array in matrices:
        if version == 1:
            out += np.ascontiguousarray(array).tobytes()
            continue
        groups = array.reshape(-1, 32)
        scales = np.abs(groups).max(1, keepdims=True) / np.float32(127)
        out += np.round(groups / scales).astype(np.int8).tobytes() + scales.astype("<f4").tobytes()
    return out


FILES = {
    "ggml": lambda w: ggml(w, b"lmgg", None),
    "ggmf": lambda w: ggml(w, b"fmgg", 1),
    "ggjt 1": lambda w: ggml(w, b"tjgg", 1),
    "ggjt 3": lambda w: ggml(w, b"tjgg", 3),
    "llama2.c 0": lambda w: llama2c(w, 0),
    "llama2.c 1": lambda w: llama2c(w, 1),
}
