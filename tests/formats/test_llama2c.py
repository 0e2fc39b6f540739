"""llama2.c checkpoints of versions 0 to 2: files written as its export.py writes them, numpy as the oracle."""

import io
import pickle
import random
import struct

import candle_convert as cc
import numpy as np
import pytest
import safetensors.numpy
from candle_convert.formats import darknet, ggml, llama2c, whisper
from candle_convert.runtime.tensor.file import Source

DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, VOCAB, SEQ = 16, 24, 2, 4, 2, 10, 6
KV = DIM // HEADS * KV_HEADS
MATRICES = {
    "attention.wq": (DIM, DIM), "attention.wk": (KV, DIM), "attention.wv": (KV, DIM), "attention.wo": (DIM, DIM),
    "feed_forward.w1": (HIDDEN, DIM), "feed_forward.w2": (DIM, HIDDEN), "feed_forward.w3": (HIDDEN, DIM),
}  # fmt: skip
TABLES = ("freq_cis_real", "freq_cis_imag")


def weights(shared):
    """Every weight by name."""
    rng = np.random.default_rng(1)
    shapes = {"tok_embeddings.weight": (VOCAB, DIM), "norm.weight": (DIM,)} | (
        {} if shared else {"output.weight": (VOCAB, DIM)}
    )
    for layer in range(LAYERS):
        shapes |= {f"layers.{layer}.{name}.weight": shape for name, shape in MATRICES.items()}
        shapes |= {f"layers.{layer}.{name}.weight": (DIM,) for name in ("attention_norm", "ffn_norm")}
    shapes |= dict.fromkeys(TABLES, (SEQ, DIM // HEADS // 2))
    return {name: rng.standard_normal(shape).astype("<f4") for name, shape in shapes.items()}


def each_layer(*names):
    return [f"layers.{layer}.{name}.weight" for name in names for layer in range(LAYERS)]


def sizes(vocab=VOCAB, **changes):
    values = {
        "dim": DIM,
        "hidden_dim": HIDDEN,
        "n_layers": LAYERS,
        "n_heads": HEADS,
        "n_kv_heads": KV_HEADS,
        "vocab_size": vocab,
        "seq_len": SEQ,
    }
    return struct.pack("<7i", *(values | changes).values())


def version_0(shared):
    arrays = weights(shared)
    attention, forward = list(MATRICES)[:4], list(MATRICES)[4:]
    order = [
        "tok_embeddings.weight",
        *each_layer("attention_norm", *attention, "ffn_norm", *forward),
        "norm.weight",
        *TABLES,
    ]
    order += [] if shared else ["output.weight"]
    return sizes(VOCAB if shared else -VOCAB) + b"".join(arrays[name].tobytes() for name in order)


def order_of_1(shared):
    return ["norm.weight", "tok_embeddings.weight", *each_layer(*MATRICES), *([] if shared else ["output.weight"])]


def version_1(shared):
    arrays = weights(shared)
    head = b"24ka" + struct.pack("<i", 1) + sizes() + bytes([shared])
    return head.ljust(256, b"\0") + b"".join(
        arrays[name].tobytes() for name in [*each_layer("attention_norm", "ffn_norm"), *order_of_1(shared)]
    )


def quantized(array, group):
    """int8 numbers and the scale of each group."""
    groups = array.reshape(-1, group)
    scale = (np.abs(groups).max(axis=1) / 127).astype("<f4")
    return np.round(groups / scale[:, None]).astype(np.int8), scale


def version_2(shared, group=8, apart=False):
    arrays = weights(shared)
    head = b"24ka" + struct.pack("<i", 2) + sizes() + bytes([shared]) + struct.pack("<i", group)
    norms = [arrays[name].tobytes() for name in [*each_layer("attention_norm", "ffn_norm"), "norm.weight"]]
    pairs = [quantized(arrays[name], group) for name in order_of_1(shared)[1:]]
    data = (
        [q.tobytes() for q, _ in pairs] + [s.tobytes() for _, s in pairs]
        if apart
        else [q.tobytes() + s.tobytes() for q, s in pairs]
    )
    return head.ljust(256, b"\0") + b"".join(norms + data)


def saved(folder, data):
    path = folder / "stories.bin"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("version", [0, 1])
def test_float_versions(version, shared, tmp_path):
    graph = cc.open(saved(tmp_path, (version_0, version_1)[version](shared)))
    expected = {
        name: array for name, array in weights(shared).items() if version == 0 or not name.startswith("freq_cis")
    }
    assert graph.format == "llama2c"
    assert graph.weights.keys() == expected.keys()
    for name, array in expected.items():
        assert np.array_equal(graph[name].numpy(), array)
    assert {key.removeprefix("llama2c."): value for key, value in graph.metadata.items()} == {
        "version": version,
        "dim": DIM,
        "hidden_dim": HIDDEN,
        "n_layers": LAYERS,
        "n_heads": HEADS,
        "n_kv_heads": KV_HEADS,
        "vocab_size": VOCAB,
        "seq_len": SEQ,
        "shared_classifier": shared,
    }


@pytest.mark.parametrize(("shared", "group"), [(True, 8), (False, 4), (True, 16)])
def test_version_2_keeps_numbers_and_scales(shared, group, tmp_path):
    graph = cc.open(saved(tmp_path, version_2(shared, group)))
    arrays = weights(shared)
    assert graph.metadata["llama2c.group_size"] == group
    assert np.array_equal(graph["norm.weight"].numpy(), arrays["norm.weight"])
    for name in order_of_1(shared)[1:]:
        q, scale = quantized(arrays[name], group)
        assert np.array_equal(graph[f"{name}.q"].numpy(), q.reshape(arrays[name].shape))
        assert np.array_equal(graph[f"{name}.scale"].numpy().reshape(-1), scale)
        if arrays[name].shape[1] % group == 0:
            assert graph[f"{name}.scale"].shape == (arrays[name].shape[0], arrays[name].shape[1] // group)


GOOD = {0: version_0(False), 1: version_1(True), 2: version_2(True)}


def _with(version, at, data):
    return GOOD[version][:at] + data + GOOD[version][at + len(data) :]


def _size(version, index, value):
    return _with(version, (0 if version == 0 else 8) + 4 * index, struct.pack("<i", value))


HOSTILE = [
    ("dim-negative", _size(1, 0, -16), "E-LLAMA2C-SIZES"),
    ("no-heads", _size(1, 3, 0), "E-LLAMA2C-SIZES"),
    ("heads-do-not-divide", _size(2, 3, 3), "E-LLAMA2C-SIZES"),
    ("layers-2^31-1", _size(1, 2, (1 << 31) - 1), "E-LLAMA2C-SIZES"),
    ("layers-2^24", _size(2, 2, 1 << 24), "E-LLAMA2C-TRUNCATED"),
    (
        "all-2^24",
        b"24ka" + struct.pack("<8i", 1, *[1 << 24] * 2, 1, 1, 1, *[1 << 24] * 2) + bytes(220),
        "E-LLAMA2C-TRUNCATED",
    ),
    ("version-3", _with(1, 4, struct.pack("<i", 3)), "E-LLAMA2C-VERSION"),
    ("group-0", _with(2, 37, struct.pack("<i", 0)), "E-LLAMA2C-HEADER"),
    ("group-7", _with(2, 37, struct.pack("<i", 7)), "E-LLAMA2C-SIZES"),
    ("flag-2", _with(1, 36, b"\2"), "E-LLAMA2C-HEADER"),
    ("padding-not-zero", _with(1, 200, b"\1"), "E-LLAMA2C-HEADER"),
    ("header-only", GOOD[1][:100], "E-LLAMA2C-TRUNCATED"),
    ("last-byte-missing", GOOD[2][:-1], "E-LLAMA2C-TRUNCATED"),
    ("trailing", GOOD[1] + b"\0", "E-LLAMA2C-TRAILING"),
    ("scales-at-the-end", version_2(True, 8, apart=True), "E-LLAMA2C-SCALES"),
]


@pytest.mark.parametrize(("name", "data", "code"), HOSTILE, ids=[row[0] for row in HOSTILE])
def test_hostile(name, data, code, tmp_path, sandbox):
    outcome = sandbox.outcome(saved(tmp_path, data))
    assert (outcome.code, outcome.quick) == (code, True), outcome


def test_version_0_is_known_by_its_exact_size_only(tmp_path):
    for data in (GOOD[0][:-4], GOOD[0] + bytes(4), _size(0, 3, 3), _size(0, 0, -16)):
        with pytest.raises(cc.FormatError) as caught:
            cc.open(saved(tmp_path, data))
        assert not caught.value.code.startswith("E-LLAMA2C")
    with pytest.raises(cc.FormatError) as caught:
        cc.plan(saved(tmp_path, GOOD[0][:-5]), tmp_path / "out.safetensors", source_format="llama2c")
    assert (caught.value.code, caught.value.why) == ("E-LLAMA2C-TRUNCATED", "5 bytes are missing")


@pytest.mark.parametrize("version", [1, 2])
def test_damaged_files_give_our_errors_only(version, tmp_path):
    good = GOOD[version]
    for length in [*range(300), *range(300, len(good), 211)]:
        with pytest.raises(cc.Error):
            cc.open(saved(tmp_path, good[:length]))
    rng = random.Random(version)
    for _ in range(200):
        data = bytearray(good)
        data[rng.randrange(45)] = rng.randrange(256)
        try:
            graph = cc.open(saved(tmp_path, bytes(data)))
        except cc.Error:
            continue
        assert all(len(tensor.raw()) == tensor.nbytes for tensor in graph.weights.values())


def _npz():
    file = io.BytesIO()
    np.savez(file, a=np.zeros(64))
    return file.getvalue()


OTHERS = {
    "safetensors": safetensors.numpy.save({"a": np.zeros(64)}),
    "npz": _npz(),
    "pickle": pickle.dumps({"a": list(range(100))}),
    "gguf": b"GGUF" + struct.pack("<IQQ", 3, 0, 0),
    "zeros": bytes(4096),
    "ones": b"\1\0\0\0" * 400,
    "text": b"dim = 16\n" * 40,
    "llama2c-like text": b"24karat gold, as in llama2.c" * 9,
    "small ints": struct.pack("<100i", *range(1, 101)),
    "zeros and a two": bytes(4) + struct.pack("<3i", 2, 9, 0) + bytes(400),
    "empty": b"",
    "short": b"lm",
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize(
    "format", [darknet.FORMAT, ggml.FORMAT, llama2c.FORMAT, whisper.FORMAT], ids=lambda format: format.name
)
def test_nothing_else_is_taken(format, name, tmp_path):
    assert not format.sniff(Source(saved(tmp_path, OTHERS[name])))
