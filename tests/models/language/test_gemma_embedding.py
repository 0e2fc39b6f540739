"""EmbeddingGemma in directories of sentence-transformers and in GGUF files: the vectors of sentence-transformers, and
those of libllama from the file."""

import json
from dataclasses import replace

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.convert.cli.main import run
from candle_convert.models.pipelines.text_inputs import TruncationWarning
from candle_convert.tests.builders.decoder_cases import decoder
from candle_convert.tests.builders.text_checkpoints import wordpiece
from candle_convert.tests.oracles.libllama import NAME
from candle_convert.tests.oracles.libllama_encoder import MEAN, EncoderInLibllama
from candle_convert.tests.oracles.transformers import difference, made

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings(f"ignore::{TruncationWarning.__module__}.TruncationWarning")

TEXTS = ["hello", "the cat sat on the mat, it was a very long day for a cat", "a day in berlin is 3 hours long"]
OURS, LIBLLAMA = 1e-4, 2e-3
"""libllama computes GELU by a table of f16."""
WINDOWS = (4, 9, 40)


def checkpoint(folder, *, dense=(160, 64), window=9, **config):
    """A directory of sentence-transformers with the modules of the published model; what reads it."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer import modules

    case = decoder("gemma3")
    own = {
        "architectures": ["Gemma3TextModel"], "use_bidirectional_attention": True, "sliding_window": window,
        "num_hidden_layers": 7, "sliding_window_pattern": 6, "query_pre_attn_scalar": 16, **config,
    }  # fmt: skip
    base = folder.with_name(f"{folder.name}-base")
    made(replace(case, cls="Gemma3TextModel", config={**case.config, **own}), 0, base)
    path = base / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | own))
    wordpiece(base, 96)
    parts = [modules.Transformer(str(base)), modules.Pooling(64, "mean")]
    for width in dense:
        previous = parts[-1].get_embedding_dimension()
        parts.append(modules.Dense(previous, width, bias=False, activation_function=torch.nn.Identity()))
    sentence_transformers.SentenceTransformer(modules=[*parts, modules.Normalize()]).save(str(folder))
    (folder / "config.json").write_bytes(path.read_bytes())  # transformers saves half of the window
    return sentence_transformers.SentenceTransformer(str(folder), device="cpu")


def vectors_of_libllama(path):
    """Vectors of the texts, of length 1 as llama.cpp's programs print them."""
    theirs = EncoderInLibllama(path, MEAN)
    found = np.stack([theirs(theirs.tokenize(text)) for text in TEXTS])
    theirs.close()
    return found / np.linalg.norm(found, axis=-1, keepdims=True)


@pytest.mark.parametrize("dense", [(160, 64), (64,), ()], ids=str)
@pytest.mark.parametrize("window", WINDOWS)
def test_vectors_of_gguf_files(dense, window, tmp_path):
    reference = checkpoint(tmp_path / "model", dense=dense, window=window)
    want = reference.encode(TEXTS)
    path = tmp_path / "model.gguf"
    report = cc.convert(tmp_path / "model", path)
    assert not [note for note in report.notes if note.code.startswith("W-GGUF")]
    for source in (tmp_path / "model", path):
        assert difference(models.load(source, threads=1).embed(TEXTS), want) < OURS, source.name
    graph = cc.open(path)
    assert graph.metadata["general.architecture"] == "gemma-embedding"
    assert [name for name in graph if name.startswith("dense")] == [f"dense_{2 + i}.weight" for i in range(len(dense))]
    if NAME:
        assert difference(vectors_of_libllama(path), want) < LIBLLAMA


def test_back_to_a_directory(tmp_path):
    """The modules are files again, which sentence-transformers reads; blocks as well, at their loss."""
    want = checkpoint(tmp_path / "model").encode(TEXTS)
    path = tmp_path / "model.gguf"
    cc.convert(tmp_path / "model", path)
    cc.convert(path, tmp_path / "back", to="safetensors")
    from sentence_transformers import SentenceTransformer

    assert difference(SentenceTransformer(str(tmp_path / "back"), device="cpu").encode(TEXTS), want) < OURS
    assert run(["quantize", str(path), str(tmp_path / "q.gguf"), "Q8_0"]) == 0
    assert cc.open(tmp_path / "q.gguf")["dense_2.weight"].dtype.name == "q8_0"
    quantized = models.load(tmp_path / "q.gguf", threads=1).embed(TEXTS)
    assert difference(quantized, want) < 0.05
    cc.convert(tmp_path / "q.gguf", tmp_path / "again", to="safetensors", dtype="f32")
    assert difference(SentenceTransformer(str(tmp_path / "again"), device="cpu").encode(TEXTS), quantized) < 0.02


@pytest.mark.parametrize(
    ("config", "dense", "why"),
    [
        ({"query_pre_attn_scalar": 40}, (160, 64), "query_pre_attn_scalar"),
        ({}, (160,), "the modules Dense"),
        ({}, (160, 32, 64), "the modules Dense"),
    ],
)
def test_what_gguf_lacks_is_refused(config, dense, why, tmp_path):
    checkpoint(tmp_path / "model", dense=dense, **config)
    with pytest.raises(cc.UnsupportedError, match=why):
        cc.convert(tmp_path / "model", tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()


def test_exported_from_gguf(tmp_path):
    """The graph has the hidden states, and the modules go along, within the file or in their folders."""
    want = checkpoint(tmp_path / "model").encode(TEXTS)
    cc.convert(tmp_path / "model", tmp_path / "model.gguf")
    for source in ("model", "model.gguf"):
        for name in (f"{source}.onnx", f"folder-{source.replace('.', '-')}"):
            cc.convert(tmp_path / source, tmp_path / name, to="onnx")
            assert difference(models.load(tmp_path / name, threads=1).embed(TEXTS), want) < OURS, name


def test_models_without_windows_are_noted(tmp_path):
    want = checkpoint(tmp_path / "model", layer_types=["full_attention"] * 7).encode(TEXTS)
    report = cc.convert(tmp_path / "model", tmp_path / "model.gguf")
    assert any("does not load models of this architecture without sliding" in note.message for note in report.notes)
    assert difference(models.load(tmp_path / "model.gguf", threads=1).embed(TEXTS), want) < OURS


def test_layers_with_windows_are_those_of_libllama(tmp_path):
    """Another order of layers, and a base of their own, are stated."""
    kinds = ["full_attention" if i in (1, 4) else "sliding_attention" for i in range(7)]
    want = checkpoint(tmp_path / "model", layer_types=kinds, rope_local_base_freq=100.0).encode(TEXTS)
    assert not [note for note in cc.convert(tmp_path / "model", tmp_path / "model.gguf").notes if "GGUF" in note.code]
    assert difference(models.load(tmp_path / "model.gguf", threads=1).embed(TEXTS), want) < OURS
    if NAME:
        assert difference(vectors_of_libllama(tmp_path / "model.gguf"), want) < LIBLLAMA
