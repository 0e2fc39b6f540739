"""Warming: what models need of machine code is compiled before they run, and what lies in the cache is counted and deleted."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime import machine, preparing
from ..runtime.dtype import DTYPES
from ..runtime.graph import Graph
from ..runtime.record import dataclass
from ..runtime.storage import Held
from ..runtime.tensor import Tensor

if TYPE_CHECKING:
    from ..models.language.model import LanguageModel

TYPES = ("q4_0", "q8_0", "q4_k", "q5_k", "q6_k", "f16", "bf16", "f32")
"""Types of the weights that models are made up of where none is named."""
WIDTH, INNER, HEADS, TOKENS = 256, 512, 4, 512
NUMBERS = {
    "context_length": 512, "embedding_length": WIDTH, "block_count": 2, "feed_forward_length": INNER,
    "attention.head_count": HEADS, "attention.head_count_kv": HEADS, "attention.key_length": WIDTH // HEADS, "attention.value_length": WIDTH // HEADS,
}  # fmt: skip
LAYER = {
    "attn_norm": (WIDTH,), "attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, WIDTH), "attn_v": (WIDTH, WIDTH), "attn_output": (WIDTH, WIDTH),
    "ffn_norm": (WIDTH,), "ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER),
}  # fmt: skip
_HEAD_NORMS: dict[str, tuple[int, ...]] = {"attn_q_norm": (WIDTH // HEADS,), "attn_k_norm": (WIDTH // HEADS,)}
FAMILIES: dict[str, tuple[dict[str, tuple[int, ...]], dict[str, int]]] = {
    "llama": ({}, {}),
    "qwen3": (_HEAD_NORMS, {}),
    "gemma3": ({**_HEAD_NORMS, "post_attention_norm": (WIDTH,), "post_ffw_norm": (WIDTH,)}, {"attention.sliding_window": 64}),
}
"""By architecture: rows that a layer has besides, and keys."""


@dataclass(frozen=True)
class Kept:
    """What one folder of the cache holds."""

    name: str
    files: int
    nbytes: int


def kept() -> list[Kept]:
    """The folders of the cache."""
    folders: dict[str, list[int]] = {}
    for path, size, _ in _files():
        folders.setdefault(path.relative_to(machine.cache()).parts[0], []).append(size)
    return [Kept(name, len(sizes), sum(sizes)) for name, sizes in sorted(folders.items())]


def cleared(days: float = 0) -> Kept:
    """Delete what has not been used for some days; how much that was."""
    count = total = 0
    for path, size, used in _files():
        if time.time() - used >= days * 86400:
            path.unlink(missing_ok=True)
            count, total = count + 1, total + size
    for folder, folders, files in os.walk(machine.cache(), topdown=False):
        if not folders and not files and Path(folder) != machine.cache():
            os.rmdir(folder)
    return Kept("", count, total)


def _files() -> Iterator[tuple[Path, int, float]]:
    """Every file of the cache, its size and when it was used last; links are not followed."""
    for folder, _, files in os.walk(machine.cache()):
        for name in files:
            path = Path(folder, name)
            status = path.lstat()
            yield path, status.st_size, max(status.st_atime, status.st_mtime)


def warm_model(graph: Graph, threads: int | None, lengths: dict[str, int] | None = None) -> None:
    """Compile what a language model, or a graph with made-up inputs of some lengths, runs with."""
    from .modelling import load
    from .running.feeds import feeds

    if not graph.nodes or any(value.name == "input_ids" for value in graph.inputs):
        load(graph, threads).prepare()
        return
    from ..runtime.session import Session

    session, fed = Session(graph, threads), feeds(graph, (), lengths=lengths)[0]
    session.run(None, fed)
    session.prepare(fed)


def warm_library(threads: int | None) -> None:
    """Compile the encoders and decoders of block types, and what language models of common families and types run with."""
    from ..ops.quants import codecs

    found: list[Any] = [kernel for codec in codecs().values() if codec.encoder is not None for kernel in codec.encoder.kernels]
    found += [codec.decoder.kernel for codec in codecs().values() if codec.decoder is not None]
    preparing.do_all([kernel.load for kernel in dict.fromkeys(found) if not kernel.stored])
    for name in FAMILIES:
        for kind in TYPES if name == "llama" else TYPES[1:2]:
            made_up(name, kind, threads).prepare()


def made_up(name: str, kind: str, threads: int | None = None) -> LanguageModel:
    """A small language model of a family, whose weights are zeros of a type."""
    from .modelling import load

    rows, keys = FAMILIES[name]
    graph = Graph(name=name)
    graph.metadata |= {"general.architecture": name, **{f"{name}.{key}": number for key, number in {**NUMBERS, **keys}.items()}}
    graph.metadata[f"{name}.attention.layer_norm_rms_epsilon"] = 1e-6
    shapes = {"token_embd": (TOKENS, WIDTH), "output": (TOKENS, WIDTH), "output_norm": (WIDTH,)}
    shapes |= {f"blk.{layer}.{row}": shape for layer in range(NUMBERS["block_count"]) for row, shape in {**LAYER, **rows}.items()}
    for weight, shape in shapes.items():
        dtype = DTYPES[kind if len(shape) > 1 else "f32"]
        graph.weights[f"{weight}.weight"] = Tensor(dtype, shape, Held(bytes(math.prod(shape) * dtype.block_nbytes // dtype.block)))
    return load(graph, threads)
