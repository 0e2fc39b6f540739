"""Llama files from before GGUF and llama2.c's, of every version: one model that transformers computes, written as each program wrote it."""

import struct

import candle_convert as cc
import gguf
import numpy as np
import pytest
from candle_convert.convert.legacy import modern
from candle_convert.convert.modelling import load, modelled

WIDTH, INNER, LAYERS, HEADS, KV_HEADS, VOCABULARY, CONTEXT = 64, 96, 2, 4, 2, 300, 32
SIZE = WIDTH // HEADS
NAMES = {
    "attention.wq": "self_attn.q_proj", "attention.wk": "self_attn.k_proj", "attention.wv": "self_attn.v_proj", "attention.wo": "self_attn.o_proj",
    "feed_forward.w1": "mlp.gate_proj", "feed_forward.w2": "mlp.down_proj", "feed_forward.w3": "mlp.up_proj",
    "attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
WORDS = [b" t", b"he", b" the", *(b"word%d" % i for i in range(VOCABULARY - 262))]
TOKENS = [b" \xe2\x81\x87 ", b"", b"", *(bytes([byte]) for byte in range(256)), *WORDS]


@pytest.fixture(scope="module")
def llama():
    """Transformers' model, and its weights as Meta names and orders them."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, max_position_embeddings=CONTEXT, rms_norm_eps=1e-5, tie_word_embeddings=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) / 8 if parameter.ndim > 1 else 1 + 0.2 * torch.randn(parameter.shape))
    held = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    found = {"tok_embeddings": held["model.embed_tokens.weight"], "norm": held["model.norm.weight"], "output": held["lm_head.weight"]}
    for i in range(LAYERS):
        for meta, name in NAMES.items():
            array = held[f"model.layers.{i}.{name}.weight"]
            heads = {"attention.wq": HEADS, "attention.wk": KV_HEADS}.get(meta)
            found[f"layers.{i}.{meta}"] = array.reshape(heads, 2, SIZE // 2, -1).swapaxes(1, 2).reshape(array.shape) if heads else array
    return model, found


def expected(model, ids):
    import torch

    with torch.no_grad():
        return model(torch.tensor(ids)).logits.numpy()


def close(got, want, tolerance=2e-5):
    return np.abs(got - want).max() <= tolerance * np.abs(want).max()


def ggml(weights, magic, version, kind=gguf.GGMLQuantizationType.F32, heads=HEADS):
    """A file of llama.cpp's: unversioned, ggmf or ggjt."""
    out = magic + (b"" if version is None else struct.pack("<I", version))
    out += struct.pack("<7i", VOCABULARY, WIDTH, 32, heads, LAYERS, SIZE, 0 if kind == gguf.GGMLQuantizationType.F32 else 7)
    for number, token in enumerate(TOKENS):
        out += struct.pack("<i", len(token)) + token + (b"" if version is None else struct.pack("<f", min(0, 259 - number)))
    for name, array in weights.items():
        stored = kind if array.ndim == 2 else gguf.GGMLQuantizationType.F32
        full = f"{name}.weight".encode()
        out += struct.pack("<3i", array.ndim, len(full), stored) + struct.pack(f"<{array.ndim}i", *array.shape[::-1]) + full
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
        order = [weights["tok_embeddings"], *stacked("attention_norm", *attention, "ffn_norm", *forward), weights["norm"],
                 np.zeros((2, CONTEXT, SIZE // 2), np.float32), *last]  # fmt: skip
        return struct.pack("<7i", *sizes) + b"".join(np.ascontiguousarray(array).tobytes() for array in order)
    head = b"24ka" + struct.pack("<8i", version, *sizes) + struct.pack("<B", shared) + (struct.pack("<i", 32) if version == 2 else b"")
    norms, matrices = [*stacked("attention_norm", "ffn_norm"), weights["norm"]], [weights["tok_embeddings"], *stacked(*attention, *forward), *last]
    out = head.ljust(256, b"\0") + b"".join(array.tobytes() for array in norms)
    for array in matrices:
        if version == 1:
            out += np.ascontiguousarray(array).tobytes()
            continue
        groups = array.reshape(-1, 32)
        scales = np.abs(groups).max(1, keepdims=True) / np.float32(127)
        out += np.round(groups / scales).astype(np.int8).tobytes() + scales.astype("<f4").tobytes()
    return out


IDS = np.array([[5, 17, 280, 260, 33, 1, 299]])
FILES = {
    "ggml": lambda w: ggml(w, b"lmgg", None), "ggmf": lambda w: ggml(w, b"fmgg", 1), "ggjt 1": lambda w: ggml(w, b"tjgg", 1),
    "ggjt 3": lambda w: ggml(w, b"tjgg", 3), "llama2.c 0": lambda w: llama2c(w, 0), "llama2.c 1": lambda w: llama2c(w, 1),
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_as_transformers(llama, kind, tmp_path):
    model, weights = llama
    (tmp_path / "model.bin").write_bytes(FILES[kind](weights))
    assert close(load(tmp_path / "model.bin", threads=1).logits(IDS), expected(model, IDS))


def test_shared_classifier(llama, tmp_path):
    model, weights = llama
    (tmp_path / "model.bin").write_bytes(llama2c(weights, 0, shared=True))
    graph = modern(cc.open(tmp_path / "model.bin"))
    assert "output.weight" not in graph.weights
    hidden = load(tmp_path / "model.bin", threads=1).logits(IDS)
    import torch

    with torch.no_grad():
        want = model.model(torch.tensor(IDS)).last_hidden_state.numpy() @ weights["tok_embeddings"].T
    assert close(hidden, want)


def test_groups_of_llama2c_are_numbers(llama, tmp_path):
    _, weights = llama
    (tmp_path / "model.bin").write_bytes(llama2c(weights, 2))
    graph = modern(cc.open(tmp_path / "model.bin"))
    for name, mine in (("layers.1.attention.wk", "blk.1.attn_k.weight"), ("feed", "token_embd.weight")):
        array = weights[name if name in weights else "tok_embeddings"]
        groups = array.reshape(-1, 32)
        scales = np.abs(groups).max(1, keepdims=True) / np.float32(127)
        want = (np.round(groups / scales) * scales).reshape(array.shape)
        assert np.array_equal(graph[mine].numpy(), want)
        assert np.array_equal(graph[mine][3:5].numpy(), want[3:5])


def test_to_gguf_with_the_tokenizer(llama, tmp_path):
    (tmp_path / "old.bin").write_bytes(ggml(llama[1], b"tjgg", 3, gguf.GGMLQuantizationType.Q8_0))
    cc.convert(tmp_path / "old.bin", tmp_path / "new.gguf")
    reader = gguf.GGUFReader(tmp_path / "new.gguf")
    fields = {name: field.contents() for name, field in reader.fields.items()}
    expected = {
        "general.architecture": "llama", "general.file_type": 7, "llama.feed_forward_length": INNER, "llama.attention.head_count_kv": KV_HEADS,
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
    }  # fmt: skip
    assert {key: fields[key] for key in expected} == expected
    told = dict(zip(fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"], strict=True))
    assert [told[text] for text in ("<unk>", "<s>", "</s>", "<0x00>", "<0xFF>", "▁the")] == [2, 3, 3, 6, 6, 1]
    assert np.allclose(fields["tokenizer.ggml.scores"], np.minimum(0, 259 - np.arange(VOCABULARY)))
    assert {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}["blk.0.attn_q.weight"] == "Q8_0"
    assert np.array_equal(load(tmp_path / "new.gguf", threads=1).logits(IDS), load(tmp_path / "old.bin", threads=1).logits(IDS))


@pytest.mark.parametrize("kind", ["ggml", "llama2.c 0"])
def test_to_a_directory_that_transformers_runs(llama, kind, tmp_path):
    import torch
    import transformers

    model, weights = llama
    (tmp_path / "old.bin").write_bytes(FILES[kind](weights))
    cc.convert(tmp_path / "old.bin", f"{tmp_path}/new/", to="safetensors")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "new", dtype=torch.float32).eval()
    assert close(expected(again, IDS), expected(model, IDS))


def test_scores_where_a_file_has_none(llama, tmp_path):
    (tmp_path / "old.bin").write_bytes(ggml(llama[1], b"lmgg", None))
    scores = modern(cc.open(tmp_path / "old.bin")).metadata["tokenizer.ggml.scores"]
    assert np.array_equal(scores, np.minimum(0, 259 - np.arange(VOCABULARY)))


HOSTILE = {
    "heads that do not fit": (lambda w: ggml(w, b"fmgg", 1, heads=5), "E-"),
    "a layer without queries": (lambda w: ggml({name: a for name, a in w.items() if name != "layers.1.attention.wq"}, b"fmgg", 1), "E-"),
    "keys of another width": (lambda w: ggml(w | {"layers.1.attention.wk": w["layers.1.attention.wk"][:16]}, b"fmgg", 1), "E-ARCH-SHAPE"),
    "a feed-forward network of another width": (
        lambda w: ggml(w | {"layers.1.feed_forward.w1": w["layers.1.feed_forward.w1"][:64]}, b"fmgg", 1), "E-ARCH-SHAPE"),
    "an embedding of another size": (lambda w: ggml(w | {"tok_embeddings": w["tok_embeddings"][:100]}, b"fmgg", 1), "E-"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile(llama, what, tmp_path):
    made, code = HOSTILE[what]
    (tmp_path / "model.bin").write_bytes(made(llama[1]))
    with pytest.raises(cc.FormatError) as caught:
        modelled(cc.open(tmp_path / "model.bin"))
    assert caught.value.code.startswith(code)
