"""Quantization to a number of bits: the type that the output's format has for it."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from pathlib import Path

from ...ops.quants.schemes.bitsandbytes import packed_rows
from ...runtime.base.errors import UnsafeFileError, UnsupportedError, UsageError
from ...runtime.ir.clone import with_own_tables
from ...runtime.ir.graph import Graph
from ...runtime.tensor.storage import Held
from ...runtime.tensor.stored_tensor import StoredTensor
from ..console.progress import Progress
from ..open.open_model import open_model
from ..open.prequantized import CONFIG, configuration
from ..open.shard_set import whole_model
from ..translate.model_facts import LEFT_ALONE
from ..write import pipeline
from ..write.conversion_options import Options
from ..write.graph_variants import VARIANTS
from ..write.plan import plan_graph, target_format
from .network.request import REQUANTIZE_HINT

TYPES = {8: "q8_0", 4: "q4_k_m"}
"""Types of ggml by bits."""
NETWORKS = {8: "q8", 4: "q4"}
"""Variants of ONNX files by bits."""
PLAIN = re.compile(r"embed|embd|wte\.|wpe\.|lm_head|shared\.|^output\.weight")
"""Names of embeddings and output layers, whose elements stay floats in bitsandbytes' 8 bits."""


def type_of(bits: int) -> str:
    """The type of ggml with that many bits. UsageError for other numbers than 8 and 4."""
    if bits not in TYPES:
        raise UsageError("E-OPTION", None, "bits is neither 8 nor 4", found=bits, hint="Name a type, such as Q5_K_M")
    return TYPES[bits]


def quantize_network(
    model: str | os.PathLike[str] | Graph, output: Path, bits: int, options: Options, progress: Progress | None
) -> pipeline.Report | None:
    """Write a model in so many bits: ONNX with int8 weights and activations or int4 blocks of weights, formats without
    blocks with bitsandbytes' rows of 8 bits. None if the output is of ggml's types.

    A model that is not a network becomes one, in a directory.
    """
    format = target_format(os.fspath(output), options)
    if not format.graphs:
        if any(dtype.kind == "block" for dtype in format.dtypes):
            return None
        if bits != 8:
            why = f"{format.name} files cannot hold weights of {bits} bits"
            raise UsageError("E-OPTION", output, why, hint="Write GGUF or ONNX, or use 8 bits")
        return pipeline.execute(plan_graph(with_scaled_rows(model, options), output, options), progress)
    graph = model if isinstance(model, Graph) else open_model(whole_model(model), parts=True)
    if graph.nodes or graph.parts:
        for each in graph.parts.values() or (graph,):
            VARIANTS[NETWORKS[bits]].apply(each, options.allow_requantize, named=False)
    else:
        options = dataclasses.replace(options, dtypes=(NETWORKS[bits],))
    return pipeline.execute(plan_graph(graph, output, options), progress)


def with_scaled_rows(model: str | os.PathLike[str] | Graph, options: Options) -> Graph:
    """A model whose matrices are integers with a scale for each row, but for embeddings and the output layer, and
    config.json as bitsandbytes and transformers read them."""
    graph = with_own_tables(model) if isinstance(model, Graph) else open_model(whole_model(model))
    weights: dict[str, StoredTensor] = {}
    left: list[str] = []
    for name, tensor in graph.weights.items():
        if tensor.dtype.kind == "block" and not options.allow_requantize:
            why = f"tensor {name!r} is already quantized, as {tensor.dtype.name}"
            raise UnsafeFileError("E-QUANT-AGAIN", None, why, hint=REQUANTIZE_HINT)
        stem, _, last = name.rpartition(".")
        weights[name] = tensor
        if last != "weight" or tensor.ndim != 2 or tensor.dtype.kind not in ("float", "block"):
            continue
        if LEFT_ALONE.search(name) or PLAIN.search(name):
            left.append(stem)
            continue
        if tensor.dtype.kind == "block":
            tensor = tensor.dequantize("f32")
        weights[name], weights[f"{stem}.SCB"] = packed_rows(tensor)
    if len(weights) == len(graph.weights):
        why = "nothing would be quantized: no linear layer has a float matrix named 'weight'"
        raise UnsupportedError("E-QUANT-NOTHING", graph.files[0] if graph.files else None, why, hint="Write GGUF")
    graph.weights = weights
    config = configuration(graph)
    if config is not None:
        said = {"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_skip_modules": left}
        graph.attachments[CONFIG] = Held(json.dumps({**config, "quantization_config": said}, indent=2).encode() + b"\n")
    return graph
