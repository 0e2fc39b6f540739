"""GGUF files of decoders: in libllama token by token, and back in transformers."""

import json

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert import models
from candle_convert.tests.builders.decoder_cases import DECODERS
from candle_convert.tests.builders.recurrent_cases import RECURRENT
from candle_convert.tests.oracles.libllama import NAME, Libllama
from candle_convert.tests.oracles.libllama_encoder import LAST, EncoderInLibllama
from candle_convert.tests.oracles.transformers import cases, difference, expected, made, transformers

CASES = {case.name: case for case in (*DECODERS, *RECURRENT)}
LIBLLAMA = 1e-3
"""libllama computes GELU by a table of f16."""
ARCHITECTURES = {
    "apertus": "apertus", "bitnet_silu": "bitnet", "bloom": "bloom", "bloom_five_heads": "bloom",
    "ernie4_5": "ernie4_5", "exaone4_small": "exaone4", "gemma3n_own_keys": "gemma3n",
    "gemma4": "gemma4", "gemma4_experts": "gemma4", "gemma4_same_values": "gemma4", "hunyuan_dense": "hunyuan-dense",
    "hunyuan_alpha": "hunyuan-dense", "llama4": "llama4", "nemotron": "nemotron", "olmoe": "olmoe",
    "qwen3_5": "qwen35", "qwen3_next": "qwen3next",
}  # fmt: skip
"""llama.cpp runs no GPT-J; it expects windows of EXAONE 4 in models of 64 layers only, computes Phi 3.5 MoE with other
norms and routing, and BitNet with SiLU unless it is new enough to read the activation."""


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_as_libllama_and_back(name, tmp_path):
    place, path = tmp_path / "model", tmp_path / "model.gguf"
    place.mkdir()
    case, arch = CASES[name], ARCHITECTURES[name]
    reference = made(case, 0, place)
    ids = np.random.default_rng(0).integers(3, reference.config.vocab_size, (1, 20))
    want = expected(reference, ids, None)
    size = np.uint32(reference.config.vocab_size)
    report = cc.convert(place, path, metadata={"tokenizer.ggml.model": "no_vocab", f"{arch}.vocab_size": size})
    assert "W-GGUF-SETTING" not in [note.code for note in report.notes]
    assert difference(models.load(path, threads=1).logits(ids), want) <= case.tolerance
    if NAME:
        theirs = Libllama(path)
        assert difference(np.stack([theirs.advance([token]) for token in ids[0]])[None], want) <= LIBLLAMA
        theirs.close()
    cc.convert(path, tmp_path / "back", to="safetensors")
    again = getattr(transformers(), case.cls).from_pretrained(tmp_path / "back", attn_implementation="eager").eval()
    assert difference(expected(again, ids, None), want) <= case.tolerance


@pytest.mark.parametrize(("name", "kind"), [("Qwen3Model", "qwen3"), ("Qwen2Model", "qwen2"), ("LlamaModel", "llama")])
def test_a_decoder_without_a_head(name, kind, tmp_path):
    """Qwen3-Embedding's own class: the vector of a text is the last token's hidden state."""
    (case,) = cases(name, kind, **{name: {"head_dim": 16}})
    reference = made(case, 0, tmp_path / "model")
    ids = np.random.default_rng(0).integers(3, reference.config.vocab_size, 20)
    want = reference(torch.tensor(ids[None])).last_hidden_state.detach().numpy()[0]
    size = np.uint32(reference.config.vocab_size)
    path = tmp_path / "model.gguf"
    cc.convert(tmp_path / "model", path, metadata={"tokenizer.ggml.model": "no_vocab", f"{kind}.vocab_size": size})
    model = models.load(path, threads=1)
    assert difference(model(ids)["last_hidden_state"][0], want) <= case.tolerance
    assert difference(model.embed([ids.tolist()])[0], want[-1] / np.linalg.norm(want[-1])) <= case.tolerance
    if NAME:
        theirs = EncoderInLibllama(path, LAST)
        assert difference(theirs(ids), want[-1]) <= LIBLLAMA
        theirs.close()
    cc.convert(path, tmp_path / "back", to="safetensors")
    again = models.load(tmp_path / "back", threads=1)
    assert difference(again(ids)["last_hidden_state"][0], want) <= case.tolerance


def test_a_dense_module_without_a_list_of_modules(tmp_path):
    """The layout of stella_en_1.5B_v5 as candle reads it: `embed` applies the module, GGUF has no place for it."""
    (case,) = cases("Qwen2Model", "qwen2", Qwen2Model={"head_dim": 16})
    reference = made(case, 0, tmp_path / "model")
    width = reference.config.hidden_size
    folder = tmp_path / "model" / "2_Dense_24"
    folder.mkdir()
    identity = "torch.nn.modules.linear.Identity"
    said = {"in_features": width, "out_features": 24, "bias": True, "activation_function": identity}
    (folder / "config.json").write_text(json.dumps(said))
    dense = torch.nn.Linear(width, 24)
    weights = {f"linear.{name}": tensor.detach().numpy() for name, tensor in dense.named_parameters()}
    cc.save_file(weights, folder / "model.safetensors")
    ids = np.random.default_rng(0).integers(3, reference.config.vocab_size, 20)
    with torch.no_grad():
        hidden = reference(torch.tensor(ids[None])).last_hidden_state[0]
        want = torch.nn.functional.normalize(dense(hidden[-1]), dim=0).numpy()
    for path in (tmp_path / "model", tmp_path / "copy"):
        assert difference(models.load(path, threads=1).embed([ids.tolist()], normalize=True)[0], want) <= case.tolerance
        cc.convert(tmp_path / "model", tmp_path / "copy", to="safetensors", force=True)
    with pytest.raises(cc.UnsupportedError, match=r"E-OUT-ARCH.*no place for 2_Dense_24"):
        cc.convert(tmp_path / "model", tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()
