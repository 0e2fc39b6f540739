"""GGML before GGUF: files built by the layout of llama.cpp's converters; scalar decoders after the C structures,
gguf-py and numpy as oracles."""

import random
import struct
from pathlib import Path

import candle_convert as cc
import gguf
import numpy as np
import pytest
from candle_convert.convert.load.legacy_llama import renamed
from candle_convert.runtime.tensor.block_codec import codec_of, decoded
from candle_convert.runtime.tensor.dtype import DTYPES, LEGACY_BLOCK_TYPES

VOCAB = [b" \xe2\x81\x87 ", b"", b"</s>", b"a", b"\xff"]
EMBD, FF, HEADS = 64, 128, 2
MATRICES = {
    "attention.wq": (EMBD, EMBD),
    "attention.wk": (EMBD, EMBD),
    "attention.wv": (EMBD, EMBD),
    "attention.wo": (EMBD, EMBD),
    "feed_forward.w1": (FF, EMBD),
    "feed_forward.w2": (EMBD, FF),
    "feed_forward.w3": (FF, EMBD),
}
BY_COLUMNS = ("tok_embeddings", "attention.wo", "feed_forward.w2")
MAGICS = {"ggml": b"lmgg", "ggmf": b"fmgg", "ggjt": b"tjgg"}
TYPES = {
    "f32": (0, 1, 4),
    "f16": (1, 1, 2),
    "q4_0": (2, 32, 18),
    "q4_1": (3, 32, 20),
    "q5_0": (6, 32, 22),
    "q5_1": (7, 32, 24),
    "q8_0": (8, 32, 34),
    "q4_0_v1": (2, 32, 20),
    "q4_1_v1": (3, 32, 24),
    "q4_2": (4, 16, 10),
    "q4_3": (5, 16, 12),
    "q5_0_v1": (6, 32, 22),
    "q5_1_v1": (7, 32, 24),
    "q8_0_v1": (8, 32, 36),
    "q4_0_v2": (2, 32, 20),
    "q4_1_v2": (3, 32, 24),
}
"""Number in the file, elements and bytes of a block."""
VARIANTS = [
    *(("ggml", None, name) for name in ("f32", "f16", "q4_0_v1", "q4_1_v1")),
    *(("ggmf", 1, name) for name in ("f16", "q4_0_v1")),
    *(("ggjt", 1, name) for name in ("f16", "q4_0_v1", "q4_1_v1", "q4_2", "q4_3", "q5_0_v1", "q5_1_v1", "q8_0_v1")),
    *(("ggjt", 2, name) for name in ("f32", "q4_0_v2", "q4_1_v2", "q5_0", "q5_1", "q8_0_v1")),
    *(("ggjt", 3, name) for name in ("f16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0")),
]


def hparams(**changes):
    return {
        "n_vocab": 5,
        "n_embd": EMBD,
        "n_mult": 32,
        "n_head": HEADS,
        "n_layer": 1,
        "n_rot": EMBD // HEADS,
        "ftype": 2,
    } | changes


def record(name, kind, shape, data, alignment, at, fields=None):
    head = struct.pack(f"<{3 + len(shape)}i", *(fields or (len(shape), len(name), kind)), *shape[::-1]) + name.encode()
    return head + bytes(-(at + len(head)) % alignment) + data


def build(magic="ggjt", version=3, values=None, tokens=VOCAB, tensors=()):
    """A file; `tensors` are (name, type, shape, bytes)."""
    out = (
        MAGICS[magic]
        + (b"" if version is None else struct.pack("<i", version))
        + struct.pack("<7i", *(values or hparams()).values())
    )
    for number, token in enumerate(tokens):
        out += struct.pack("<i", len(token)) + token + (b"" if magic == "ggml" else struct.pack("<f", -number))
    for name, kind, shape, data in tensors:
        out += record(name, kind, shape, data, 32 if magic == "ggjt" else 1, len(out))
    return out


def quantized(name, shape, seed):
    """Random blocks whose scales are small numbers."""
    _, length, size = TYPES[name]
    rng = np.random.default_rng(seed)
    if length == 1:
        return rng.standard_normal(shape).astype({2: "<f2", 4: "<f4"}[size]).tobytes()
    blocks = rng.integers(0, 256, (int(np.prod(shape)) // length, size), dtype=np.uint8)
    scales = 2 if name in ("q4_1", "q4_3", "q5_1", "q4_1_v1", "q4_1_v2", "q5_1_v1") else 1
    wide = name in ("q4_0_v1", "q4_1_v1", "q8_0_v1", "q4_0_v2", "q4_1_v2")
    values = rng.standard_normal((len(blocks), scales)).astype("<f4" if wide else "<f2")
    blocks[:, : values[0].nbytes] = values.view(np.uint8).reshape(len(blocks), -1)
    return blocks.tobytes()


def llama(name="q4_0"):
    """Tensors of a one-layer llama whose matrices have the type `name`."""
    kind = TYPES[name][0]
    matrices = {"tok_embeddings.weight": (5, EMBD), "output.weight": (5, EMBD)} | {
        f"layers.0.{key}.weight": shape for key, shape in MATRICES.items()
    }
    found = [(key, kind, shape, quantized(name, shape, seed)) for seed, (key, shape) in enumerate(matrices.items())]
    norms = ("norm.weight", "layers.0.attention_norm.weight", "layers.0.ffn_norm.weight")
    return found + [(key, 0, (EMBD,), np.arange(EMBD, dtype="<f4").tobytes()) for key in norms]


def saved(folder, data, name="model.bin"):
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(("magic", "version", "name"), VARIANTS, ids=lambda value: str(value))
def test_every_version_and_type(magic, version, name, tmp_path):
    tensors = llama(name)
    graph = cc.open(saved(tmp_path, build(magic, version, tensors=tensors)))
    assert graph.format == "ggml"
    assert graph.metadata["ggml.magic"] == magic
    assert graph.metadata["ggml.version"] == (version or 0)
    assert [graph.metadata[f"ggml.{key}"] for key in hparams()] == list(hparams().values())
    assert graph.metadata["tokenizer.ggml.tokens"] == [" ⁇ ", "", "</s>", "a", b"\xff"]
    if magic == "ggml":
        assert "tokenizer.ggml.scores" not in graph.metadata
    else:
        assert np.array_equal(graph.metadata["tokenizer.ggml.scores"], np.float32([0, -1, -2, -3, -4]))
    assert list(graph.weights) == [key for key, _, _, _ in tensors]
    for key, kind, shape, data in tensors:
        tensor = graph[key]
        assert (tensor.dtype.name, tensor.shape, bytes(tensor.raw())) == (
            name if kind == TYPES[name][0] else "f32",
            shape,
            data,
        )


# Decoders of one block, written after the structures and loops of ggml.c of the time: pairs of nibbles, `d`, `m`, `qh`,
# `qs`.


def _q4(block, scale, nibble_order, minimum):
    width = struct.calcsize(scale)
    d = np.float32(struct.unpack_from(scale, block)[0])
    m = np.float32(struct.unpack_from(scale, block, width)[0]) if minimum else None
    packed = block[width * (2 if minimum else 1) :]
    out = np.zeros(2 * len(packed), np.float32)
    for j, byte in enumerate(packed):
        low, high = (2 * j, 2 * j + 1) if nibble_order == "pairs" else (j, j + len(packed))
        for index, q in ((low, byte & 15), (high, byte >> 4)):
            out[index] = np.float32(q) * d + m if minimum else np.float32(q - 8) * d
    return out


def _q5(block, minimum):
    d = np.float32(struct.unpack_from("<e", block)[0])
    m = np.float32(struct.unpack_from("<e", block, 2)[0]) if minimum else None
    start = 4 if minimum else 2
    (qh,) = struct.unpack_from("<I", block, start)
    out = np.zeros(32, np.float32)
    for index in range(0, 32, 2):
        byte = block[start + 4 + index // 2]
        for step, nibble in ((0, byte & 15), (1, byte >> 4)):
            q = nibble | ((qh >> (index + step)) & 1) << 4
            out[index + step] = np.float32(q) * d + m if minimum else np.float32(q - 16) * d
    return out


def _q8(block):
    d = np.float32(struct.unpack_from("<f", block)[0])
    return np.float32([np.float32(q) * d for q in struct.unpack_from("<32b", block, 4)])


SCALAR = {
    "q4_0_v1": lambda block: _q4(block, "<f", "pairs", False),
    "q4_1_v1": lambda block: _q4(block, "<f", "pairs", True),
    "q4_2": lambda block: _q4(block, "<e", "pairs", False),
    "q4_3": lambda block: _q4(block, "<e", "pairs", True),
    "q5_0_v1": lambda block: _q5(block, False),
    "q5_1_v1": lambda block: _q5(block, True),
    "q8_0_v1": _q8,
    "q4_0_v2": lambda block: _q4(block, "<f", "halves", False),
    "q4_1_v2": lambda block: _q4(block, "<f", "halves", True),
}
RAMP = bytes(low | high << 4 for low, high in zip(range(0, 16, 2), range(1, 16, 2), strict=True))
HALVES = bytes(low | 15 - low << 4 for low in range(16))
COUNT = np.arange(16, dtype=np.float32)
KNOWN = {
    "q4_0_v1": (struct.pack("<f", 2) + RAMP * 2, np.tile(2 * (COUNT - 8), 2)),
    "q4_1_v1": (struct.pack("<2f", 2, -1) + RAMP * 2, np.tile(2 * COUNT - 1, 2)),
    "q4_2": (struct.pack("<e", 0.5) + RAMP, 0.5 * (COUNT - 8)),
    "q4_3": (struct.pack("<2e", 0.5, 3) + RAMP, 0.5 * COUNT + 3),
    "q5_0_v1": (struct.pack("<eI", 2, 0xFFFF0000) + RAMP * 2, 2 * np.concatenate((COUNT - 16, COUNT))),
    "q5_1_v1": (struct.pack("<2eI", 2, 1, 0x0000FFFF) + RAMP * 2, 2 * np.concatenate((COUNT + 16, COUNT)) + 1),
    "q8_0_v1": (struct.pack("<f32b", 0.25, *range(-16, 16)), 0.25 * np.arange(-16, 16)),
    "q4_0_v2": (struct.pack("<f", 2) + HALVES, 2 * np.concatenate((COUNT - 8, 7 - COUNT))),
    "q4_1_v2": (struct.pack("<2f", 2, 1) + HALVES, 2 * np.concatenate((COUNT, 15 - COUNT)) + 1),
}


def same(ours, theirs):
    return bool(((ours.view(np.uint32) == theirs.view(np.uint32)) | (np.isnan(ours) & np.isnan(theirs))).all())


@pytest.mark.parametrize("dtype", LEGACY_BLOCK_TYPES, ids=str)
def test_legacy_blocks_decode_to_known_and_scalar_values(dtype):
    block, values = KNOWN[dtype.name]
    assert np.array_equal(decoded(codec_of(dtype), block), values.astype(np.float32))
    blocks = np.random.default_rng(3).integers(0, 256, (300, dtype.block_nbytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected = np.concatenate([SCALAR[dtype.name](each.tobytes()) for each in blocks])
    assert same(decoded(codec_of(dtype), blocks.tobytes()), expected)
    assert dtype.ggml is None


def test_values_of_a_file_match_gguf_py(tmp_path):
    graph = cc.open(saved(tmp_path, build(tensors=llama("q4_1"))))
    for key, kind, shape, data in llama("q4_1"):
        theirs = (
            gguf.quants.dequantize(np.frombuffer(data, np.uint8), gguf.GGMLQuantizationType(kind))
            if kind
            else np.frombuffer(data, "<f4")
        )
        assert np.array_equal(graph[key].dequantize().numpy(), theirs.reshape(shape))


def _split(name, shape, data, count, number):
    """What a part of a split model holds of a tensor: its rows or columns of the blocks, vectors whole."""
    if len(shape) == 1:
        return shape, data
    blocks = np.frombuffer(data, np.uint8).reshape(shape[0], -1)
    axis = 1 if any(key in name for key in BY_COLUMNS) else 0
    part = np.split(blocks, count, axis)[number]
    return (part.shape[0], shape[1] // (count if axis else 1)), part.tobytes()


def parts(folder, name, count, magic="ggml", version=None, tensors=None):
    for number in range(count):
        held = [
            (key, kind, *_split(key, shape, data, count, number))
            for key, kind, shape, data in tensors or embedding_of_four(llama(name))
        ]
        saved(
            folder,
            build(magic, version, hparams(n_vocab=4), VOCAB[:4], held),
            f"model.bin.{number}" if number else "model.bin",
        )


def embedding_of_four(tensors):
    """Matrices of four instead of five tokens, which can be split."""
    return [
        (key, kind, (4, EMBD), data[: len(data) * 4 // 5]) if shape[0] == 5 else (key, kind, shape, data)
        for key, kind, shape, data in tensors
    ]


@pytest.mark.parametrize(
    ("name", "magic", "version"), [("f32", "ggml", None), ("f16", "ggmf", 1), ("q4_0_v1", "ggml", None)]
)
def test_parts_are_put_together(name, magic, version, tmp_path):
    parts(tmp_path, name, 2, magic, version)
    for opened in ("model.bin", "model.bin.1"):
        graph = cc.open(tmp_path / opened)
        assert [Path(file).name for file in graph.files] == ["model.bin", "model.bin.1"]
        for key, _, shape, data in embedding_of_four(llama(name)):
            assert (graph[key].shape, bytes(graph[key].raw())) == (shape, data)
            rows = np.frombuffer(data, np.uint8).reshape(shape[0], -1)
            assert bytes(graph[key][1:3].raw()) == rows[1:3].tobytes()
    assert b"".join(bytes(chunk) for chunk in graph["layers.0.attention.wo.weight"].chunks(1)) == bytes(
        graph["layers.0.attention.wo.weight"].raw()
    )


def test_todays_blocks_go_into_gguf_byte_for_byte(tmp_path):
    tensors = llama("q5_1")
    cc.convert(saved(tmp_path, build(tensors=tensors)), tmp_path / "out.gguf")
    read = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "out.gguf").tensors}
    for key, kind, shape, data in tensors:
        tensor = read[renamed(key)]
        assert (int(tensor.tensor_type), tuple(tensor.shape[::-1]), tensor.data.tobytes()) == (kind, shape, data)


def test_older_blocks_are_refused_until_they_are_decoded(tmp_path):
    path = saved(tmp_path, build("ggjt", 2, tensors=llama("q4_1_v2")))
    with pytest.raises(cc.UnsupportedError) as caught:
        cc.convert(path, tmp_path / "out.gguf")
    assert caught.value.code == "E-OUT-DTYPE"
    cc.convert(path, tmp_path / "out.safetensors", dtype="f32")
    graph = cc.open(tmp_path / "out.safetensors")
    for key, kind, shape, data in llama("q4_1_v2"):
        if kind:
            values = np.concatenate([SCALAR["q4_1_v2"](data[at : at + 24]) for at in range(0, len(data), 24)])
            assert np.array_equal(graph[key].numpy(), values.reshape(shape))


GOOD = build(tensors=llama())
START = 4 + 4 + 28
FIRST = len(build(tensors=()))


def _with(data, at, text):
    return data[:at] + text + data[at + len(text) :]


def _word(at, value, data=GOOD):
    return _with(data, at, struct.pack("<I", value & 0xFFFFFFFF))


def _one(shape, data, fields=None, magic="ggjt"):
    start = build(magic, None if magic == "ggml" else 3)
    return start + record("tok_embeddings.weight", 2, shape, data, 32, len(start), fields)


HOSTILE = [
    (44, "negative-n_embd", _word(12, -64), "E-GGML-HPARAMS"),
    (44, "n_vocab-2^31", _word(8, 1 << 31), "E-GGML-HPARAMS"),
    (44, "n_vocab-2^31-1", _word(8, (1 << 31) - 1), "E-GGML-TRUNCATED"),
    (44, "n_vocab-2^31-unversioned", _word(4, 1 << 31, build("ggml", None, tensors=llama("f32"))), "E-GGML-HPARAMS"),
    (44, "no-heads", _word(20, 0), "E-GGML-HPARAMS"),
    (44, "n_layer-2^31-1", _word(24, (1 << 31) - 1), "E-GGML-TRUNCATED"),
    (44, "no-vocabulary-left", build(values=hparams(n_vocab=10**6)), "E-GGML-TRUNCATED"),
    (45, "token-2^31-1", _word(START, (1 << 31) - 1), "E-GGML-TOKEN"),
    (45, "token-negative", _word(START, -1), "E-GGML-TOKEN"),
    (45, "token-longer-than-the-file", _word(START, len(GOOD)), "E-GGML-TOKEN"),
    (46, "0-dimensions", _word(FIRST, 0), "E-GGML-DIMS"),
    (46, "3-dimensions", _word(FIRST, 3), "E-GGML-DIMS"),
    (46, "2^31-dimensions", _word(FIRST, 1 << 31), "E-GGML-DIMS"),
    (46, "name-of-5000", _word(FIRST + 4, 5000), "E-GGML-NAME"),
    (46, "name-negative", _word(FIRST + 4, -1), "E-GGML-NAME"),
    (46, "dimension-negative", _one((-5, 64), b""), "E-GGML-DIMS"),
    (46, "dimensions-overflow", _one((2**31 - 1, 2**31 - 32), b""), "E-GGML-TRUNCATED"),
    (46, "row-of-half-a-block", _one((1, 48), bytes(27)), "E-GGML-BLOCK"),
    (46, "name-twice", build(tensors=[*llama(), llama()[0]]), "E-GGML-TWICE"),
    (46, "name-not-utf8", _with(GOOD, FIRST + 20, b"\xff"), "E-GGML-NAME"),
    (47, "ftype-99", _word(32, 99), "E-GGML-FTYPE"),
    (47, "ftype-with-version", _word(32, 2002), "E-GGML-FTYPE"),
    (47, "type-99", _word(FIRST + 8, 99), "E-GGML-TYPE"),
    (47, "removed-type-in-version-3", _word(FIRST + 8, 4), "E-GGML-TYPE"),
    (47, "ggjt-version-4", _word(4, 4), "E-GGML-VERSION"),
    (47, "rwkv", _word(4, 100, build("ggmf", 1)), "E-GGML-VERSION"),
    (48, "not-aligned", build("ggmf", 3, tensors=llama()).replace(b"fmgg", b"tjgg"), "E-GGML-ALIGNMENT"),
    (48, "padding-not-zero", _with(GOOD, GOOD.index(b"attention.wo.weight") + 19, b"\1"), "E-GGML-ALIGNMENT"),
    (0, "trailing", GOOD + b"\0" * 7, "E-GGML-TRUNCATED"),
    (0, "last-tensor-missing", build(tensors=llama()[:-1]), "E-GGML-TRUNCATED"),
    (0, "last-byte-missing", GOOD[:-1], "E-GGML-TRUNCATED"),
    (0, "gpt-2", b"lmgg" + struct.pack("<7i", 50257, 1024, 768, 12, 12, 1, 50257) + bytes(64), "E-GGML-FAMILY"),
    (0, "gpt-j", b"lmgg" + struct.pack("<8i", 50400, 2048, 4096, 16, 28, 64, 1, 50400) + bytes(64), "E-GGML-FAMILY"),
    (0, "lora", b"algg" + bytes(64), "E-GGML-KIND"),
    (0, "magic-only", b"tjgg", "E-GGML-TRUNCATED"),
]


@pytest.mark.parametrize(("number", "name", "data", "code"), HOSTILE, ids=[f"{row[0]}-{row[1]}" for row in HOSTILE])
def test_hostile(number, name, data, code, tmp_path, sandbox):
    outcome = sandbox.outcome(saved(tmp_path, data))
    assert (outcome.code, outcome.quick) == (code, True), outcome


def _missing(folder):
    (folder / "model.bin.1").unlink()


def _too_many(folder):
    (folder / "model.bin.2").write_bytes((folder / "model.bin.1").read_bytes())


def _of_another(folder):
    other = [
        *embedding_of_four(llama("f32"))[:-1],
        ("other.weight", 0, (8,), bytes(32)),
        embedding_of_four(llama("f32"))[-1],
    ]
    held = [(key, kind, *_split(key, shape, data, 2, 1)) for key, kind, shape, data in other]
    saved(folder, build("ggml", None, hparams(n_vocab=4), VOCAB[:4], held), "model.bin.1")


def _not_a_divisor(folder):
    tensors = [("tok_embeddings.weight", 0, (4, 48), bytes(4 * 4 * 48)), *embedding_of_four(llama("f32"))[1:]]
    saved(folder, build("ggml", None, hparams(n_vocab=4), VOCAB[:4], tensors))


def _truncated(folder):
    path = folder / "model.bin.1"
    path.write_bytes(path.read_bytes()[:-9])


BAD_PARTS = [
    (_missing, "E-GGML-PARTS"),
    (_too_many, "E-GGML-PARTS"),
    (_of_another, "E-GGML-PARTS"),
    (_not_a_divisor, "E-GGML-PARTS"),
    (_truncated, "E-GGML-TRUNCATED"),
]


@pytest.mark.parametrize(("change", "code"), BAD_PARTS, ids=[row[0].__name__ for row in BAD_PARTS])
def test_hostile_49_parts(change, code, tmp_path, sandbox):
    parts(tmp_path, "f32", 2)
    change(tmp_path)
    outcome = sandbox.outcome(tmp_path / "model.bin")
    assert (outcome.code, outcome.quick) == (code, True), outcome


def test_a_link_to_elsewhere_is_no_part(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    parts(folder, "f32", 2)
    (folder / "model.bin.1").rename(tmp_path / "elsewhere")
    (folder / "model.bin.1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(cc.UnsafeFileError):
        cc.open(folder / "model.bin")


def test_every_truncation_is_an_error(tmp_path):
    path = tmp_path / "model.ggml"
    for length in [*range(FIRST + 80), *range(FIRST + 80, len(GOOD), 37)]:
        path.write_bytes(GOOD[:length])
        with pytest.raises(cc.Error) as caught:
            cc.open(path)
        assert length < 4 or caught.value.code.startswith("E-GGML"), (length, caught.value)


def test_flipped_bytes_give_our_errors_only(tmp_path):
    path, rng = tmp_path / "model.ggml", random.Random(7)
    for _ in range(400):
        data = bytearray(GOOD)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(FIRST + 300)] = rng.randrange(256)
        path.write_bytes(data)
        try:
            graph = cc.open(path)
        except cc.Error:
            continue
        assert all(len(tensor.raw()) == tensor.nbytes for tensor in graph.weights.values())


def test_types_of_old_files_have_no_number_in_gguf():
    assert {dtype.name for dtype in LEGACY_BLOCK_TYPES} == SCALAR.keys() == KNOWN.keys()
    assert all(DTYPES[dtype.name] is dtype for dtype in LEGACY_BLOCK_TYPES)
