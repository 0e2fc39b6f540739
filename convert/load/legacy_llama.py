"""Llama files from before GGUF, and llama2.c's, completed to the metadata of a GGUF file of the same model.

The first files of llama.cpp and llama2.c's have Meta's names, and the rows of queries and keys in the order in which
GGUF files have them. Neither says the epsilon of the norms; 1e-5 is Llama 2's and what llama2.c computes with, Llama 1
has 1e-6. Sources: llama.cpp's convert_llama_ggml_to_gguf.py, llama2.c's run.c and export.py.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import TYPE_CHECKING, Any

from ...runtime.base.errors import FormatError
from ...runtime.base.string_array import StringArray
from ...runtime.ir.graph import Graph, Meta
from ...runtime.tensor.dtype import F32
from ...runtime.tensor.storage import Derived
from ...runtime.tensor.stored_tensor import StoredTensor

if TYPE_CHECKING:
    import numpy as np

EPSILON = 1e-5
CONTEXT = 2048
WHOLE = {"tok_embeddings": "token_embd", "norm": "output_norm", "output": "output"}
LAYER = {
    "attention.wq": "attn_q",
    "attention.wk": "attn_k",
    "attention.wv": "attn_v",
    "attention.wo": "attn_output",
    "attention_norm": "attn_norm",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w2": "ffn_down",
    "feed_forward.w3": "ffn_up",
    "ffn_norm": "ffn_norm",
}
"""Names of GGUF by Meta's, without layer and ending."""
TABLES = ("freq_cis_real", "freq_cis_imag")
"""Cosines and sines, which nothing reads any more."""
QUANTIZED, SCALES = ".weight.q", ".weight.scale"
ROLES = {"unknown": 0, "bos": 1, "eos": 2}
"""Ids of every Llama tokenizer of that time; the first bytes follow them."""
TEXTS = ("<unk>", "<s>", "</s>")
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
BYTES = 256


def gguf_names(graph: Graph) -> Graph:
    """A graph in GGUF's names and keys, of the same storage; `graph` itself where it is not of these formats."""
    shapes = {"ggml": _ggml, "llama2c": _llama2c}.get(graph.format)
    if shapes is None or "tok_embeddings.weight" not in (name.removesuffix(".q") for name in graph.weights):
        return graph
    import numpy

    weights = {renamed(name): tensor for name, tensor in _plain(graph).items() if name not in TABLES}
    path = graph.files[0] if graph.files else None
    said = {**shapes(graph), **_measured(weights, path)}
    said["attention.head_count_kv"] = _key_heads(weights, said, path)
    typed = {f"llama.{key}": numpy.uint32(value) for key, value in said.items()}
    metadata: dict[str, Meta] = {"general.architecture": "llama", "general.type": "model", **typed}
    metadata["llama.attention.layer_norm_rms_epsilon"] = numpy.float32(EPSILON)
    made = dataclasses.replace(
        graph, weights=weights, metadata={**metadata, **_tokenizer(graph)}, notes=list(graph.notes)
    )
    if graph.format == "ggml":
        made.note(
            "W-LEGACY-EPSILON",
            "the file does not store the epsilon of the norms; using Llama 2's 1e-05 (Llama 1 has 1e-06)",
        )
    return made


def _ggml(graph: Graph) -> dict[str, int]:
    said = {
        name: int(str(graph.metadata[f"ggml.{name}"])) for name in ("n_vocab", "n_embd", "n_head", "n_layer", "n_rot")
    }
    return {
        "context_length": CONTEXT,
        "embedding_length": said["n_embd"],
        "block_count": said["n_layer"],
        "attention.head_count": said["n_head"],
        "rope.dimension_count": said["n_rot"],
        "vocab_size": said["n_vocab"],
    }


def _llama2c(graph: Graph) -> dict[str, int]:
    said = {
        name: int(str(graph.metadata[f"llama2c.{name}"]))
        for name in ("dim", "n_heads", "n_layers", "seq_len", "vocab_size")
    }
    return {"context_length": said["seq_len"], "embedding_length": said["dim"], "block_count": said["n_layers"],
            "attention.head_count": said["n_heads"], "rope.dimension_count": said["dim"] // said["n_heads"],
            "vocab_size": said["vocab_size"]}  # fmt: skip


def _measured(weights: dict[str, StoredTensor], path: str | None) -> dict[str, int]:
    """Hyper-parameters that follow from shapes."""
    gate = weights.get("blk.0.ffn_gate.weight")
    if gate is None or len(gate.shape) != 2:
        raise FormatError(
            "E-LEGACY-LAYER", path, "the first layer has no feed-forward network", hint="Fetch the file again"
        )
    return {"feed_forward_length": gate.shape[0]}


def _key_heads(weights: dict[str, StoredTensor], said: dict[str, int], path: str | None) -> int:
    keys, heads, width = weights.get("blk.0.attn_k.weight"), said["attention.head_count"], said["embedding_length"]
    if keys is None or heads < 1 or width % heads or keys.shape[0] % max(width // heads, 1):
        found = None if keys is None else list(keys.shape)
        why = f"{heads} heads do not share {width} dimensions with the keys of the first layer"
        raise FormatError("E-LEGACY-HEADS", path, why, found=found)
    return keys.shape[0] // (width // heads)


def renamed(name: str) -> str:
    """GGUF's name of a weight that has Meta's; any other name as it is."""
    stem = name.removesuffix(".weight")
    layer = re.fullmatch(r"layers\.(\d{1,9})\.(.+)", stem)
    if layer and layer[2] in LAYER:
        return f"blk.{layer[1]}.{LAYER[layer[2]]}.weight"
    return f"{WHOLE[stem]}.weight" if stem in WHOLE else name


def origins(graph: Graph) -> dict[str, str]:
    """Canonical name -> name in the file, of weights that `gguf_names` renames; of codes with scales, the codes."""
    return {renamed(name.removesuffix(".q")): name for name in graph.weights if not name.endswith(SCALES)}


def _plain(graph: Graph) -> dict[str, StoredTensor]:
    """The weights, those that llama2.c stores as int8 with scales as f32."""
    found = {}
    for name, tensor in graph.weights.items():
        if name.endswith(QUANTIZED):
            found[name.removesuffix(".q")] = _scaled(tensor, graph.weights[name.removesuffix(QUANTIZED) + SCALES])
        elif not name.endswith(SCALES):
            found[name] = tensor
    return found


def _scaled(codes: StoredTensor, scales: StoredTensor) -> StoredTensor:
    """f32 values of int8 codes, each group of neighbours of which has one scale; computed row by row."""
    import numpy

    columns, group = codes.shape[-1], math.prod(codes.shape) // math.prod(scales.shape)

    def read(start: int, stop: int) -> memoryview:
        first, last = start // 4, stop // 4
        low, high = first // group, -(-last // group)
        factors = numpy.frombuffer(scales.storage.read(4 * low, 4 * high), "<f4")
        values = numpy.frombuffer(codes.storage.read(first, last), numpy.int8)
        return (values * factors[numpy.arange(first, last) // group - low]).astype(numpy.float32).view(numpy.uint8).data

    storage = Derived(4 * math.prod(codes.shape), 4 * columns, read, sequential=codes.storage.sequential)
    return StoredTensor(F32, codes.shape, storage)


def _tokenizer(graph: Graph) -> dict[str, Meta]:
    """The tokenizer's keys; none where the file has no vocabulary."""
    import numpy

    tokens = graph.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list | StringArray) or len(tokens) < len(TEXTS):
        return {}
    told = [
        _told(index, token if isinstance(token, bytes) else str(token).encode()) for index, token in enumerate(tokens)
    ]
    kinds = numpy.array([kind for _, kind in told], numpy.int32)
    scores: Any = graph.metadata.get("tokenizer.ggml.scores")
    ids = {f"tokenizer.ggml.{role}_token_id": numpy.uint32(number) for role, number in ROLES.items()}
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [text for text, _ in told],
        "tokenizer.ggml.scores": _ranks(len(told)) if scores is None else numpy.asarray(scores, numpy.float32),
        "tokenizer.ggml.token_type": kinds,
        **ids,
    }


def _told(index: int, token: bytes) -> tuple[str, int]:
    """A token's text and type as GGUF files have them."""
    if index < len(TEXTS):
        return TEXTS[index], CONTROL if index else UNKNOWN
    if not token:
        return "", CONTROL
    if index < len(TEXTS) + BYTES and len(token) == 1:
        return f"<0x{token[0]:02X}>", BYTE
    return token.decode("utf-8", "replace").replace(" ", "▁"), NORMAL


def _ranks(count: int) -> np.ndarray:
    """Scores for tokens of a file without scores, by rank: tokens stand in training order, the best one first."""
    import numpy

    return numpy.minimum(len(TEXTS) + BYTES - numpy.arange(count, dtype=numpy.float32), 0)
