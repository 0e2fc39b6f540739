"""Quantization to a number of bits: the type that the output's format has for it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from ...ops.quants.packings import packings
from ...runtime.base.errors import UsageError
from ...runtime.ir.clone import with_own_tables
from ...runtime.ir.graph import Graph
from ..console.progress import Progress
from ..open.open_model import open_model
from ..open.shard_set import whole_model
from ..write import pipeline
from ..write.conversion_options import Options
from ..write.graph_variants import VARIANTS
from ..write.plan import plan_graph, target_format
from .dequantize import plain_weights
from .packed.pack_weights import pack_weights

TYPES = {8: "q8_0", 4: "q4_k_m"}
"""Types of ggml by bits."""
NETWORKS = {8: "q8", 4: "q4"}
"""Variants of ONNX files by bits."""
ROWS = "bnb-8bit"
"""The packing of files without blocks."""


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
    plain_weights(graph, options.nan, options.allow_requantize)
    pack_weights(graph, packings()[ROWS], graph.weights.keys(), 1)
    return graph
