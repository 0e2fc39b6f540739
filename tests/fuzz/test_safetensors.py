"""Safetensors files whose header is changed: every command ends as bad input may."""

import json
import random
import struct

from candle_convert.tests.fuzz.harness import Case, sweep
from candle_convert.tests.fuzz.values import mutated

FILE = "{dir}/m.safetensors"
INDEX = "model.safetensors.index.json"
ACTIONS = (
    ("inspect", FILE),
    ("check", FILE),
    ("scan", FILE),
    ("hash", FILE),
    ("print", FILE, "a"),
    ("diff", FILE, FILE),
    ("verify", FILE, FILE),
    ("convert", FILE, "{out}/m.npz"),
    ("convert", FILE, "{out}/m.gguf"),
    ("convert", FILE, "{out}/m.pth", "--dtype", "f16"),
    ("quantize", FILE, "{out}/q.gguf", "Q8_0"),
    ("metadata", "set", FILE, "key", "value", "-o", "{out}/n.safetensors"),
)
SHARDED = (
    ("inspect", "{dir}"),
    ("check", "{dir}"),
    ("convert", "{dir}", "{out}/m.npz"),
    ("merge", f"{{dir}}/{INDEX}", "{out}/m.safetensors"),
)
TENSORS = {
    "a": ("F32", [4, 32], 512),
    "b.weight": ("BF16", [2, 32], 128),
    "c": ("I64", [3], 24),
    "d": ("F8_E4M3", [8], 8),
    "e": ("BOOL", [], 1),
}


def header():
    """A valid header and the bytes behind it."""
    found, end = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, size) in TENSORS.items():
        found[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    return found, bytes(end)


def encoded(said, data, length=None):
    """A file, which may state another length of its header."""
    text = json.dumps(said).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def mutant(draw: random.Random) -> Case:
    """A file with one or two changes to its header, some with another length, byte or end."""
    said, data = header()
    for _ in range(draw.choice((1, 1, 2))):
        said = mutated(said, draw) if isinstance(said, dict) else said
    size = len(json.dumps(said))
    lengths = (0, 1, size - 1, size + 1, size + len(data), 2**31, 2**63, 2**64 - 1)
    made = bytearray(encoded(said, data, draw.choice(lengths) if draw.random() < 1 / 8 else None))
    if draw.random() < 1 / 8:
        made[draw.randrange(len(made))] = draw.randrange(256)
    if draw.random() < 1 / 8:
        del made[draw.randrange(len(made)) :]
    return Case({"m.safetensors": bytes(made)}, draw.sample(ACTIONS, 3))


def sharded(draw: random.Random) -> Case:
    """Two shards whose index is changed."""
    said, data = header()
    index = {
        "metadata": {"total_size": len(data)},
        "weight_map": dict.fromkeys(TENSORS, "model-00001-of-00002.safetensors"),
    }
    index["weight_map"]["f"] = "model-00002-of-00002.safetensors"
    second = {"f": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    files = {
        "model-00001-of-00002.safetensors": encoded(said, data),
        "model-00002-of-00002.safetensors": encoded(second, bytes(4)),
    }
    return Case({**files, INDEX: json.dumps(mutated(index, draw)).encode()}, draw.sample(SHARDED, 2))


def test_changed_headers(full):
    sweep(mutant, full, count=10)


def test_changed_indexes(full):
    sweep(sharded, full, count=15)
