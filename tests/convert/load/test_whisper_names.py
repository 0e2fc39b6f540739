"""Whisper from files of OpenAI, whisper.cpp and CTranslate2 against transformers."""

import json
import struct
from dataclasses import replace

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert import models
from candle_convert.runtime.base.errors import Error, FormatError, UnsupportedError
from candle_convert.tests.builders.ctranslate2_files import ctranslate2_file
from candle_convert.tests.builders.whisper_files import END, PUBLISHED, ctranslate2_variables, openai_names, published
from candle_convert.tests.oracles.transformers import difference, made, stored_ties

ROLES = ("bos", "eos", "pad", "decoder_start")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    return folder, published(0, folder)


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    return {
        "input_features": rng.standard_normal((1, 80, 3000), np.float32),
        "decoder_input_ids": rng.integers(0, 51865, (1, 5)),
    }


@pytest.fixture(scope="module")
def wanted(checkpoint, arrays):
    with torch.no_grad():
        found = checkpoint[1](**{name: torch.tensor(array) for name, array in arrays.items()}, use_cache=False)
    return found.logits.numpy()


def distance(path, arrays, wanted):
    return difference(models.load(path, threads=1, activations="f32")(**arrays)["logits"], wanted)


def test_openai(checkpoint, arrays, wanted, tmp_path):
    weights, dims = openai_names(checkpoint[1])
    torch.save({"dims": dims, "model_state_dict": weights}, tmp_path / "tiny.pt")
    assert distance(tmp_path / "tiny.pt", arrays, wanted) < 3e-5


@pytest.mark.parametrize(("quantized", "tolerance"), [(False, 3e-5), (True, 0.05)])
def test_ctranslate2(checkpoint, arrays, wanted, quantized, tolerance, tmp_path):
    (tmp_path / "model.bin").write_bytes(ctranslate2_file(*ctranslate2_variables(checkpoint[1], quantized)))
    assert cc.open(tmp_path / "model.bin").format == "ctranslate2"
    assert distance(tmp_path / "model.bin", arrays, wanted) < tolerance


@pytest.fixture(scope="module")
def with_head(checkpoint, arrays, tmp_path_factory):
    """The directory of a model whose head is not the embedding, the model in transformers, and its logits."""
    folder = tmp_path_factory.mktemp("with_head")
    cls = type(checkpoint[1])
    reference, _ = stored_ties(cls, checkpoint[0], folder)
    for name in ("tokenizer.json", "preprocessor_config.json"):
        (folder / name).write_text((checkpoint[0] / name).read_text())
    with torch.no_grad():
        found = reference(**{name: torch.tensor(array) for name, array in arrays.items()}, use_cache=False)
    return folder, reference, found.logits.numpy()


@pytest.mark.parametrize(("quantized", "tolerance"), [(False, 3e-5), (True, 0.05)])
def test_a_head_of_ctranslate2(with_head, arrays, quantized, tolerance, tmp_path):
    variables, _ = ctranslate2_variables(with_head[1], quantized)
    variables["decoder/projection/weight"] = with_head[1].proj_out.weight.detach().numpy()
    (tmp_path / "model.bin").write_bytes(ctranslate2_file(variables, {}))
    assert distance(tmp_path / "model.bin", arrays, with_head[2]) < tolerance


def test_whisper_cpp_has_no_place_for_a_head(with_head, tmp_path):
    path = tmp_path / "ggml-tiny.whisper.bin"
    with pytest.raises(UnsupportedError, match=r"E-OUT-HEAD.*token embedding"):
        cc.convert(with_head[0], path, to="whisper")
    assert not path.exists()


def test_lists_of_ctranslate2(checkpoint, tmp_path):
    """Suppressed tokens and alignment heads of the config.json beside the file, also in what it is converted to."""
    (tmp_path / "model.bin").write_bytes(ctranslate2_file(*ctranslate2_variables(checkpoint[1], False)))
    said = {"suppress_ids": [1, 2, 7], "suppress_ids_begin": [220, END], "alignment_heads": [[1, 0], [0, 1]]}
    (tmp_path / "config.json").write_text(json.dumps({**said, "lang_ids": [50259]}))
    cc.convert(tmp_path / "model.bin", tmp_path / "hf", to="safetensors")
    for path in (tmp_path / "model.bin", tmp_path / "hf"):
        model = models.load(path, threads=1)
        assert model.settings.constraints.suppressed == (1, 2, 7)
        assert model.settings.constraints.suppressed_at_begin == (220, END)
        assert model.alignment_heads == [(1, 0), (0, 1)]


@pytest.mark.parametrize(("dtype", "tolerance"), [("f32", 3e-5), ("f16", 3e-3)])
def test_whisper_cpp(checkpoint, arrays, wanted, dtype, tolerance, tmp_path):
    """whisper.cpp's files as we write them, with OpenAI's names and shapes, and as they run."""
    folder, reference = checkpoint
    path = tmp_path / "ggml-tiny.whisper.bin"
    cc.convert(folder, path, to="whisper", dtype=dtype)
    graph = cc.open(path)
    names, _ = openai_names(reference)
    assert set(graph.weights) == {"mel_filters", *names}
    assert graph.weights["encoder.conv1.bias"].shape == (32, 1)
    assert graph.weights["decoder.positional_embedding"].dtype.name == "f32"
    assert graph.weights["decoder.blocks.1.cross_attn.value.weight"].dtype.name == dtype
    assert distance(path, arrays, wanted) < tolerance
    ours, theirs = models.load(path, threads=1), models.load(folder, threads=1)
    assert ours.tokens == theirs.tokens
    text = " Say 'aa bb', please: 12 é"
    assert ours.tokenizer.encode(text) == theirs.tokenizer.encode(text)


def test_whisper_cpp_quantized_and_back(checkpoint, arrays, wanted, tmp_path):
    cc.quantize(checkpoint[0], tmp_path / "q8.whisper.bin", "q8_0")
    assert cc.open(tmp_path / "q8.whisper.bin").metadata["whisper.ftype"] == 7
    assert distance(tmp_path / "q8.whisper.bin", arrays, wanted) < 0.03
    cc.convert(tmp_path / "q8.whisper.bin", tmp_path / "back", to="safetensors", dtype="f32")
    assert distance(tmp_path / "back", arrays, wanted) < 0.03


@pytest.mark.parametrize(("kind", "tolerance"), [("q8_0", 0.03), ("q4_0", 0.3)])
def test_gguf(checkpoint, arrays, wanted, kind, tolerance, tmp_path):
    cc.quantize(checkpoint[0], tmp_path / "model.gguf", kind)
    graph = cc.open(tmp_path / "model.gguf")
    assert graph.weights["decoder.layers.0.mlp.up.weight"].dtype.name == kind
    assert graph.weights["encoder.position_embeddings.weight"].dtype.name == "f32"
    assert distance(tmp_path / "model.gguf", arrays, wanted) < tolerance
    assert models.load(tmp_path / "model.gguf", threads=1).tokens == models.load(checkpoint[0], threads=1).tokens


def test_ids_of_special_tokens_without_a_tokenizer(checkpoint, arrays, wanted, tmp_path):
    """A vocabulary smaller than the published ones has no token 50256, which transformers pads with by default."""
    from transformers import WhisperForConditionalGeneration

    small = tmp_path / "small"
    config = {
        **PUBLISHED.config,
        "vocab_size": 96,
        "begin_suppress_tokens": None,
        **{f"{role}_token_id": at for at, role in enumerate(ROLES, 3)},
    }
    made(replace(PUBLISHED, config=config), 0, small)
    cc.convert(small, tmp_path / "model.gguf")
    cc.convert(tmp_path / "model.gguf", tmp_path / "back", to="safetensors")
    back = WhisperForConditionalGeneration.from_pretrained(tmp_path / "back").config
    assert [getattr(back, f"{role}_token_id") for role in ROLES] == [3, 4, 5, 6]


def test_unspoken_tokens_as_openai_lists_them(checkpoint):
    """Symbols; the list of multilingual models in generation_config.json was made by the same rule."""
    from candle_convert.models.pipelines.audio.transcription.speech_tokens import unspoken

    tokenizer = models.load(checkpoint[0], threads=1).tokenizer
    found = unspoken(tokenizer)
    assert {tokenizer.encode(symbol)[0] for symbol in "#(*+/;<=>@[\\]^_`{|}~"} <= set(found)
    assert not {tokenizer.encode(letter)[0] for letter in "abc,.!?"} & set(found)
    assert max(found) < END


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda data: data[:-3], "E-CT2-TRUNCATED"),
        (lambda data: data + b"x", "E-CT2-END"),
        (lambda data: struct.pack("<I", 3) + data[4:], "E-CT2-VERSION"),
        (lambda data: data.replace(b"decoder/projection/weight", b"encoder/num_headsssssssss"), None),
        (lambda data: data.replace(b"encoder/num_heads\0\0", b"encoder/num_heads\0\x63"), "E-CT2-DIMS"),
    ],
)
def test_damaged(checkpoint, change, code, tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(change(ctranslate2_file(*ctranslate2_variables(checkpoint[1], False))))
    if code is None:
        assert "encoder/num_headsssssssss" in cc.open(path).weights
        return
    with pytest.raises((FormatError, UnsupportedError), match=code):
        cc.open(path)


def test_a_file_without_its_variables(tmp_path):
    variables = {"decoder/embeddings/weight": np.zeros((51865, 4), np.float32)}
    (tmp_path / "model.bin").write_bytes(ctranslate2_file(variables, {}))
    with pytest.raises(Error, match="E-WHISPER-SIZE"):
        models.load(tmp_path / "model.bin")
