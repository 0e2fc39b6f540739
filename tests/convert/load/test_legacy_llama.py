"""Llama files from before GGUF and llama2.c's, of every version: one model that transformers computes, written as each
program wrote it."""

import candle_convert as cc
import gguf
import numpy as np
import pytest
from candle_convert.convert.load.bind import bind_model
from candle_convert.convert.load.legacy_llama import gguf_names
from candle_convert.convert.load.load_model import load
from candle_convert.tests.builders.legacy_llama import (
    FILES,
    INNER,
    KV_HEADS,
    VOCABULARY,
    ggml,
    llama2c,
    transformers_llama,
)


@pytest.fixture
def llama():
    return transformers_llama()


def expected(model, ids):
    import torch

    with torch.no_grad():
        return model(torch.tensor(ids)).logits.numpy()


def close(got, want, tolerance=2e-5):
    return np.abs(got - want).max() <= tolerance * np.abs(want).max()


IDS = np.array([[5, 17, 280, 260, 33, 1, 299]])


@pytest.mark.parametrize("kind", FILES)
def test_as_transformers(llama, kind, tmp_path):
    model, weights = llama
    (tmp_path / "model.bin").write_bytes(FILES[kind](weights))
    assert close(load(tmp_path / "model.bin", threads=1).logits(IDS), expected(model, IDS))


def test_shared_classifier(llama, tmp_path):
    model, weights = llama
    (tmp_path / "model.bin").write_bytes(llama2c(weights, 0, shared=True))
    graph = gguf_names(cc.open(tmp_path / "model.bin"))
    assert "output.weight" not in graph.weights
    hidden = load(tmp_path / "model.bin", threads=1).logits(IDS)
    import torch

    with torch.no_grad():
        want = model.model(torch.tensor(IDS)).last_hidden_state.numpy() @ weights["tok_embeddings"].T
    assert close(hidden, want)


def test_groups_of_llama2c_are_numbers(llama, tmp_path):
    _, weights = llama
    (tmp_path / "model.bin").write_bytes(llama2c(weights, 2))
    graph = gguf_names(cc.open(tmp_path / "model.bin"))
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
        "general.architecture": "llama",
        "general.file_type": 7,
        "llama.feed_forward_length": INNER,
        "llama.attention.head_count_kv": KV_HEADS,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    assert {key: fields[key] for key in expected} == expected
    told = dict(zip(fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"], strict=True))
    assert [told[text] for text in ("<unk>", "<s>", "</s>", "<0x00>", "<0xFF>", "▁the")] == [2, 3, 3, 6, 6, 1]
    assert np.allclose(fields["tokenizer.ggml.scores"], np.minimum(0, 259 - np.arange(VOCABULARY)))
    assert {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}["blk.0.attn_q.weight"] == "Q8_0"
    assert np.array_equal(
        load(tmp_path / "new.gguf", threads=1).logits(IDS), load(tmp_path / "old.bin", threads=1).logits(IDS)
    )


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
    scores = gguf_names(cc.open(tmp_path / "old.bin")).metadata["tokenizer.ggml.scores"]
    assert np.array_equal(scores, np.minimum(0, 259 - np.arange(VOCABULARY)))


HOSTILE = {
    "heads that do not fit": (lambda w: ggml(w, b"fmgg", 1, heads=5), "E-"),
    "a layer without queries": (
        lambda w: ggml({name: a for name, a in w.items() if name != "layers.1.attention.wq"}, b"fmgg", 1),
        "E-",
    ),
    "keys of another width": (
        lambda w: ggml(w | {"layers.1.attention.wk": w["layers.1.attention.wk"][:16]}, b"fmgg", 1),
        "E-ARCH-SHAPE",
    ),
    "a feed-forward network of another width": (
        lambda w: ggml(w | {"layers.1.feed_forward.w1": w["layers.1.feed_forward.w1"][:64]}, b"fmgg", 1),
        "E-ARCH-SHAPE",
    ),
    "an embedding of another size": (
        lambda w: ggml(w | {"tok_embeddings": w["tok_embeddings"][:100]}, b"fmgg", 1),
        "E-",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile(llama, what, tmp_path):
    made, code = HOSTILE[what]
    (tmp_path / "model.bin").write_bytes(made(llama[1]))
    with pytest.raises(cc.FormatError) as caught:
        bind_model(cc.open(tmp_path / "model.bin"))
    assert caught.value.code.startswith(code)
