"""Kernel cache: compiles the kernels of models ahead of time, counts and deletes cached files."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runtime.base.dataclass import dataclass
from ...runtime.execute import compile_ahead
from ...runtime.ir.graph import Graph
from ...runtime.jit import code_cache
from ...runtime.tensor.dtype import DTYPES
from ...runtime.tensor.storage import Held
from ...runtime.tensor.stored_tensor import StoredTensor

if TYPE_CHECKING:
    from ...models.generation.language_model import LanguageModel

TYPES = ("q4_0", "q5_0", "q8_0", "q4_k", "q5_k", "q6_k", "f16", "bf16", "f32")
"""Types of the weights that models are made up of where none is named."""
WIDTH, INNER, HEADS, TOKENS = 256, 512, 4, 512
NUMBERS = {
    "context_length": 512,
    "embedding_length": WIDTH,
    "block_count": 2,
    "feed_forward_length": INNER,
    "attention.head_count": HEADS,
    "attention.head_count_kv": HEADS,
    "attention.key_length": WIDTH // HEADS,
    "attention.value_length": WIDTH // HEADS,
}
LAYER = {
    "attn_norm": (WIDTH,),
    "attn_q": (WIDTH, WIDTH),
    "attn_k": (WIDTH, WIDTH),
    "attn_v": (WIDTH, WIDTH),
    "attn_output": (WIDTH, WIDTH),
    "ffn_norm": (WIDTH,),
    "ffn_gate": (INNER, WIDTH),
    "ffn_up": (INNER, WIDTH),
    "ffn_down": (WIDTH, INNER),
}
_HEAD_NORMS: dict[str, tuple[int, ...]] = {"attn_q_norm": (WIDTH // HEADS,), "attn_k_norm": (WIDTH // HEADS,)}
FAMILIES: dict[str, tuple[dict[str, tuple[int, ...]], dict[str, int]]] = {
    "llama": ({}, {}),
    "qwen3": (_HEAD_NORMS, {}),
    "gemma3": (
        {**_HEAD_NORMS, "post_attention_norm": (WIDTH,), "post_ffw_norm": (WIDTH,)},
        {"attention.sliding_window": 64},
    ),
}
"""By architecture: additional weights of a layer, and keys."""
ENCODER = {
    "model_type": "bert", "vocab_size": 256, "hidden_size": 384, "num_hidden_layers": 2, "num_attention_heads": 12,
    "intermediate_size": 1536,
}  # fmt: skip
"""A text encoder of MiniLM's width."""


@dataclass(frozen=True)
class CacheUsage:
    """Number and size of the files in one folder of the cache."""

    name: str
    files: int
    nbytes: int


def usage() -> list[CacheUsage]:
    """The usage of each folder of the cache."""
    folders: dict[str, list[int]] = {}
    for path, size, _ in _files():
        folders.setdefault(path.relative_to(code_cache.cache()).parts[0], []).append(size)
    return [CacheUsage(name, len(sizes), sum(sizes)) for name, sizes in sorted(folders.items())]


def delete_unused(days: float = 0) -> CacheUsage:
    """Delete files unused for `days` days; return their number and size."""
    count = total = 0
    for path, size, used in _files():
        if time.time() - used >= days * 86400:
            with contextlib.suppress(OSError):  # another user's
                path.unlink(missing_ok=True)
                count, total = count + 1, total + size
    for folder, folders, files in os.walk(code_cache.cache(), topdown=False):
        if not folders and not files and Path(folder) != code_cache.cache():
            with contextlib.suppress(OSError):  # another process has put something there
                os.rmdir(folder)
    return CacheUsage("", count, total)


def _files() -> Iterator[tuple[Path, int, float]]:
    """Every file of the cache, its size and when it was used last; links are not followed."""
    for folder, _, files in os.walk(code_cache.cache()):
        for name in files:
            path = Path(folder, name)
            try:
                status = path.lstat()
            except FileNotFoundError:  # another process has replaced it
                continue
            yield path, status.st_size, max(status.st_atime, status.st_mtime)


def warm_model(graph: Graph, threads: int | None, lengths: dict[str, int] | None = None) -> None:
    """Compile the kernels of a language model, or of a graph with random inputs of some lengths."""
    from ..load.load_model import load
    from ..run.feeds import check_dims, feeds

    check_dims(graph, lengths or {})
    if not graph.nodes or any(value.name == "input_ids" for value in graph.inputs):
        load(graph, threads).prepare()
        return
    from ...runtime.session import Session

    session, fed = Session(graph, threads), feeds(graph, (), lengths=lengths)[0]
    session.run(None, fed)
    session.prepare(fed)


def warm_library(threads: int | None) -> None:
    """Compile the encoders and decoders of block types, and the kernels of common language models and types, encoders
    and image networks."""
    from ...runtime.session import Session
    from ...runtime.tensor.block_codec import codecs
    from ..load.load_model import load
    from ..run.feeds import feeds
    from ..trainable.class_names import ClassName
    from ..trainable.new_weights import new_model
    from .synthetic_network import NETWORKS

    found: list[Any] = [
        kernel for codec in codecs().values() if codec.encoder is not None for kernel in codec.encoder.kernels
    ]
    found += [codec.decoder.kernel for codec in codecs().values() if codec.decoder is not None]
    compile_ahead.run_all([kernel.load for kernel in dict.fromkeys(found) if not kernel.is_cached])
    for name in FAMILIES:
        for kind in TYPES if name == "llama" else TYPES[1:2]:
            synthetic_model(name, kind, threads).prepare()
    load(new_model(ENCODER, ClassName("Bert", "Model")), threads).prepare()
    for network in NETWORKS:
        graph = network()
        Session(graph, threads).prepare(feeds(graph, ())[0])


def synthetic_model(name: str, kind: str, threads: int | None = None) -> LanguageModel:
    """A small language model of a family with zero weights of a type."""
    from ..load.load_model import load

    rows, keys = FAMILIES[name]
    graph = Graph(name=name)
    graph.metadata |= {
        "general.architecture": name,
        **{f"{name}.{key}": number for key, number in {**NUMBERS, **keys}.items()},
    }
    graph.metadata[f"{name}.attention.layer_norm_rms_epsilon"] = 1e-6
    shapes = {"token_embd": (TOKENS, WIDTH), "output": (TOKENS, WIDTH), "output_norm": (WIDTH,)}
    shapes |= {
        f"blk.{layer}.{row}": shape
        for layer in range(NUMBERS["block_count"])
        for row, shape in {**LAYER, **rows}.items()
    }
    for weight, shape in shapes.items():
        dtype = DTYPES[kind if len(shape) > 1 else "f32"]
        graph.weights[f"{weight}.weight"] = StoredTensor(
            dtype, shape, Held(bytes(math.prod(shape) * dtype.block_nbytes // dtype.block))
        )
    return load(graph, threads)
