"""Samples of llama.cpp's files before GGUF, by hand."""

import struct
from pathlib import Path

import numpy as np
from candle_convert.tests.builders.sample_arrays import written

EMBD = 4
LLAMA = {f"layers.0.attention.w{key}.weight": (EMBD, EMBD) for key in "qkvo"} | {
    f"layers.0.feed_forward.w{key}.weight": (EMBD, EMBD) for key in "123"
}
LLAMA |= {"tok_embeddings.weight": (3, EMBD), "output.weight": (3, EMBD), "norm.weight": (EMBD,)}
LLAMA |= {"layers.0.attention_norm.weight": (EMBD,), "layers.0.ffn_norm.weight": (EMBD,)}


def records(shapes: dict[str, tuple[int, ...]], at: int, alignment: int) -> bytes:
    """Tensors as llama.cpp and whisper.cpp wrote them before GGUF: f16 matrices, f32 vectors."""
    out = b""
    for number, (name, shape) in enumerate(shapes.items()):
        half = len(shape) > 1 and shape[-1] > 1 and "positional" not in name
        out += struct.pack(f"<{3 + len(shape)}i", len(shape), len(name), int(half), *shape[::-1]) + name.encode()
        out += bytes(-(at + len(out)) % alignment)
        out += np.full(shape, number + 1, "<f2" if half else "<f4").tobytes()
    return out


def _llama(magic: bytes, version: int | None) -> bytes:
    out = (
        magic
        + (b"" if version is None else struct.pack("<i", version))
        + struct.pack("<7i", 3, EMBD, EMBD, 2, 1, EMBD // 2, 1)
    )
    for number, token in enumerate((b"a", b"", b"\xff")):
        out += struct.pack("<i", len(token)) + token + (b"" if version is None else struct.pack("<f", -number))
    return out + records(LLAMA, len(out), 32 if magic == b"tjgg" else 1)


def ggml_first(folder: Path) -> Path:
    return written(folder / "x.bin", _llama(b"lmgg", None))


def ggml_ggmf(folder: Path) -> Path:
    return written(folder / "x.bin", _llama(b"fmgg", 1))


def ggml_ggjt(folder: Path) -> Path:
    return written(folder / "x.bin", _llama(b"tjgg", 3))


SAMPLES = {"unversioned": ggml_first, "ggmf": ggml_ggmf, "ggjt-3": ggml_ggjt}
