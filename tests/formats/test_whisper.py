"""whisper.cpp models: files built by the layout of its converter, numpy and gguf-py as oracles for values."""

import random
import struct

import candle_convert as cc
import gguf
import numpy as np
import pytest
from candle_convert.tests.builders.samples.whisper import shapes

VOCAB = [b"!", b" the", b"\xf0\x9f", b""]
STATE = 32
HPARAMS = {
    "n_vocab": 7, "n_audio_ctx": 6, "n_audio_state": STATE, "n_audio_head": 2, "n_audio_layer": 1,
    "n_text_ctx": 5, "n_text_state": STATE, "n_text_head": 4, "n_text_layer": 1, "n_mels": 3, "ftype": 1,
}  # fmt: skip
FILTERS = np.arange(12, dtype="<f4").reshape(3, 4)
F16, Q5_0 = 1, 6


def model(kind=F16):
    """Tensors as (name, type, shape, bytes); matrices have the type `kind`."""
    rng = np.random.default_rng(5)
    found = []
    for name, shape in shapes(STATE).items():
        values = rng.standard_normal(shape).astype(np.float32)
        if len(shape) == 1 or shape[-1] == 1 or "positional" in name:
            found.append((name, 0, shape, values.astype("<f4").tobytes()))
        elif kind == F16 or len(shape) == 3:
            found.append((name, F16, shape, values.astype("<f2").tobytes()))
        else:
            found.append((name, kind, shape, gguf.quants.quantize(values, gguf.GGMLQuantizationType(kind)).tobytes()))
    return found


def build(tensors=(), hparams=HPARAMS, filters=FILTERS, tokens=VOCAB, count=None):
    out = b"lmgg" + struct.pack("<11i", *hparams.values()) + struct.pack("<2i", *filters.shape) + filters.tobytes()
    out += struct.pack("<i", len(tokens) if count is None else count) + b"".join(
        struct.pack("<i", len(token)) + token for token in tokens
    )
    for name, kind, shape, data in tensors:
        out += struct.pack(f"<{3 + len(shape)}i", len(shape), len(name), kind, *shape[::-1]) + name.encode() + data
    return out


def saved(folder, data):
    path = folder / "ggml-model.bin"
    path.write_bytes(data)
    return path


def test_a_model_in_half_precision(tmp_path):
    tensors = model()
    graph = cc.open(saved(tmp_path, build(tensors)))
    assert graph.format == "whisper"
    assert {key: graph.metadata[f"whisper.{key}"] for key in HPARAMS} == HPARAMS
    assert graph.metadata["tokenizer.ggml.tokens"] == ["!", " the", b"\xf0\x9f", ""]
    assert np.array_equal(graph["mel_filters"].numpy(), FILTERS)
    assert list(graph.weights) == ["mel_filters", *(name for name, _, _, _ in tensors)]
    for name, kind, shape, data in tensors:
        assert np.array_equal(graph[name].numpy(), np.frombuffer(data, "<f2" if kind else "<f4").reshape(shape))


def test_quantized_blocks_of_the_last_version_are_todays(tmp_path):
    tensors = model(Q5_0)
    graph = cc.open(saved(tmp_path, build(tensors, HPARAMS | {"ftype": 2008})))
    assert (graph.metadata["whisper.ftype"], graph.metadata["whisper.qnt_version"]) == (8, 2)
    for name, kind, shape, data in tensors:
        if kind == Q5_0:
            theirs = gguf.quants.dequantize(np.frombuffer(data, np.uint8), gguf.GGMLQuantizationType.Q5_0)
            assert np.array_equal(graph[name].dequantize().numpy(), theirs.reshape(shape))


@pytest.mark.parametrize(("version", "dtype"), [(0, "q5_0_v1"), (1, "q5_0"), (2, "q5_0")])
def test_the_quantization_version_says_how_blocks_are_laid_out(version, dtype, tmp_path):
    graph = cc.open(saved(tmp_path, build(model(Q5_0), HPARAMS | {"ftype": 1000 * version + 8})))
    assert graph["decoder.token_embedding.weight"].dtype.name == dtype


def test_a_file_without_weights_is_read_with_a_note(tmp_path):
    graph = cc.open(saved(tmp_path, build()))
    assert list(graph.weights) == ["mel_filters"]
    assert [note.code for note in graph.notes] == ["W-GGML-EMPTY"]


GOOD = build(model())
VOCABULARY = 4 + 44 + 8 + FILTERS.nbytes
FIRST = len(build())


def _word(at, value):
    return GOOD[:at] + struct.pack("<I", value & 0xFFFFFFFF) + GOOD[at + 4 :]


HOSTILE = [
    (44, "negative-n_vocab", _word(4, -1), "E-GGML-HPARAMS"),
    (44, "states-differ", _word(28, 64), "E-GGML-FAMILY"),
    (44, "filters-2^31", _word(52, (1 << 31) - 1), "E-GGML-TRUNCATED"),
    (44, "more-tokens-than-n_vocab", _word(VOCABULARY, 8), "E-GGML-VOCAB"),
    (44, "negative-token-count", _word(VOCABULARY, -1), "E-GGML-VOCAB"),
    (44, "n_audio_layer-2^31-1", _word(20, (1 << 31) - 1), "E-GGML-TRUNCATED"),
    (44, "vocabulary-of-2^31-1", build((), HPARAMS | {"n_vocab": 2**31 - 1}, count=2**31 - 1), "E-GGML-TRUNCATED"),
    (45, "token-2^31-1", _word(VOCABULARY + 4, (1 << 31) - 1), "E-GGML-TOKEN"),
    (46, "5-dimensions", _word(FIRST, 5), "E-GGML-DIMS"),
    (46, "name-of-5000", _word(FIRST + 4, 5000), "E-GGML-NAME"),
    (46, "tensor-named-mel_filters", build([*model(), ("mel_filters", 0, (1,), bytes(4))]), "E-GGML-TWICE"),
    (47, "type-4", _word(FIRST + 8, 99), "E-GGML-TYPE"),
    (47, "qnt-version-3", _word(44, 3008), "E-GGML-FTYPE"),
    (47, "ftype-99", _word(44, 99), "E-GGML-FTYPE"),
    (0, "last-tensor-missing", build(model()[:-1]), "E-GGML-TRUNCATED"),
    (0, "trailing", GOOD + b"\0\0", "E-GGML-TRUNCATED"),
]


@pytest.mark.parametrize(("number", "name", "data", "code"), HOSTILE, ids=[f"{row[0]}-{row[1]}" for row in HOSTILE])
def test_hostile(number, name, data, code, tmp_path, sandbox):
    outcome = sandbox.outcome(saved(tmp_path, data))
    assert (outcome.code, outcome.quick) == (code, True), outcome


def test_every_truncation_is_an_error(tmp_path):
    lengths = [*range(FIRST), *range(FIRST + 1, FIRST + 90), *range(FIRST + 90, len(GOOD), 997)]
    for length in lengths:
        with pytest.raises(cc.Error) as caught:
            cc.open(saved(tmp_path, GOOD[:length]))
        assert length < 4 or caught.value.code.startswith("E-GGML"), (length, caught.value)


def test_flipped_bytes_give_our_errors_only(tmp_path):
    rng = random.Random(11)
    for _ in range(300):
        data = bytearray(GOOD)
        data[rng.randrange(FIRST + 200)] = rng.randrange(256)
        try:
            graph = cc.open(saved(tmp_path, bytes(data)))
        except cc.Error:
            continue
        assert all(len(tensor.raw()) == tensor.nbytes for tensor in graph.weights.values())
