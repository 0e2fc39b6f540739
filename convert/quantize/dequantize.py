"""Dequantization of all quantized weights of a model to floats."""

from __future__ import annotations

from collections.abc import Collection

from ...runtime.base.errors import UnsafeFileError, UsageError
from ...runtime.ir.graph import Graph
from ...runtime.passes.precision.cast_weights import Audit
from ...runtime.passes.quantize.block_weights import Quantize
from ...runtime.tensor.block_codec import codec_of
from ...runtime.tensor.dtype import BlockType
from ..translate.gguf_file_type import BY_NAME, FILE_TYPE_KEY
from .network.request import REQUANTIZE_HINT
from .recipe.rule import type_named


def dequantize(graph: Graph, dtype_name: str, nan: str, elsewhere: Collection[str] = ()) -> list[Audit]:
    """Give the quantized weights of `graph`, and those quantized `elsewhere`, a plain dtype; what the rounding meets,
    known when they are read.

    Raises UsageError for a dtype that cannot hold fractions.
    """
    import numpy

    dtype = type_named(dtype_name)
    if isinstance(dtype, BlockType) or dtype.kind != "float":
        raise UsageError(
            "E-DTYPE-NAME", None, f"{dtype.name} is not a floating-point dtype", hint="Use f32, f16 or bf16"
        )
    made = Quantize(
        {name: dtype for name, tensor in graph.weights.items() if tensor.qtype is not None or name in elsewhere},
        codec_of,
        nan=nan,
    )
    if made.run(graph) and FILE_TYPE_KEY in graph.metadata and dtype.name in BY_NAME:
        graph.metadata[FILE_TYPE_KEY] = numpy.uint32(BY_NAME[dtype.name].number)
    return made.audits


def plain_weights(graph: Graph, nan: str, allowed: bool) -> list[Audit]:
    """Give weights in blocks f16, if they may be quantized again. UnsafeFileError if not."""
    blocks = [name for name, tensor in graph.weights.items() if tensor.dtype.kind == "block"]
    if not blocks:
        return []
    if not allowed:
        why = f"tensor {blocks[0]!r} is already quantized, as {graph.weights[blocks[0]].dtype.name}"
        raise UnsafeFileError("E-QUANT-AGAIN", None, why, hint=REQUANTIZE_HINT)
    return dequantize(graph, "f16", nan)
