"""Quantization to a number of bits: the type that the output's format has for it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from ...runtime.base.errors import UsageError
from ...runtime.ir.graph import Graph
from ..console.progress import Progress
from ..open.open_model import open_model
from ..open.shard_set import whole_model
from ..write import pipeline
from ..write.conversion_options import Options
from ..write.graph_variants import VARIANTS
from ..write.plan import plan_graph, target_format

TYPES = {8: "q8_0", 4: "q4_k_m"}
"""Types of ggml by bits."""
NETWORKS = {8: "q8", 4: "q4"}
"""Variants of ONNX files by bits."""


def type_of(bits: int) -> str:
    """The type of ggml with that many bits. UsageError for other numbers than 8 and 4."""
    if bits not in TYPES:
        raise UsageError("E-OPTION", None, "bits is neither 8 nor 4", found=bits, hint="Name a type, such as Q5_K_M")
    return TYPES[bits]


def quantize_network(
    model: str | os.PathLike[str] | Graph, output: Path, bits: int, options: Options, progress: Progress | None
) -> pipeline.Report | None:
    """Write an ONNX file of a model in so many bits: int8 weights and activations, or int4 blocks of weights. None if
    the output is not ONNX.

    A model that is not a network becomes one, in a directory.
    """
    if not target_format(os.fspath(output), options).graphs:
        return None
    graph = model if isinstance(model, Graph) else open_model(whole_model(model), parts=True)
    if graph.nodes or graph.parts:
        for each in graph.parts.values() or (graph,):
            VARIANTS[NETWORKS[bits]].apply(each, options.allow_requantize, named=False)
    else:
        options = dataclasses.replace(options, dtypes=(NETWORKS[bits],))
    return pipeline.execute(plan_graph(graph, output, options), progress)
