"""Refusals of a conversion: what an output cannot hold, options that do not fit, names of files that are unsafe."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from ...runtime.base.errors import UnsafeFileError, UnsupportedError, UsageError
from ...runtime.base.units import counted
from ...runtime.contract.format import Format
from ...runtime.ir.graph import Graph
from ...runtime.passes.weights.select import Select
from ...runtime.tensor.element_packing import exact_nbytes
from ..open import model_files
from ..open.model_directory import INDEX
from ..open.module_files import is_module_file
from ..open.open_model import ATTACHED_SUFFIXES
from .conversion_options import Options


def check_loose(names: Sequence[str], written: set[str], folder: Path) -> None:
    """Check the names of attached files, which come from a file: plain text files in the folder itself, neither models
    nor indices nor files that are written already, and files of sentence-transformers' modules."""
    for name in names:
        text = (
            is_module_file(name)
            or model_files.is_component_file(name)
            or (
                name.lower().endswith(ATTACHED_SUFFIXES)
                and not name.lower().endswith(INDEX)
                and not set(name) & set("/\\\0")
            )
        )
        if not text or name.lower() in written:
            reason = "the name of a file to be written" if text else "not text that belongs to a model"
            why = f"the model carries a file {name!r}, which is {reason}"
            raise UnsafeFileError("E-OUT-NAME", folder, why, hint="Use --no-tokenizer to leave such files out")


def refuse_part(graph: Graph, options: Options) -> None:
    """Weights that nodes use are neither left out, renamed nor shared without the nodes."""
    chosen: dict[str, object] = {"--tied dedupe": options.tied == "dedupe", "--lora": options.lora}
    chosen |= {"--include, --exclude, --rename or --map": options.select != Select()}
    given = [name for name, value in chosen.items() if value]
    if (graph.nodes or graph.parts) and given:
        why = f"{given[0]} changes weights alone, and the nodes of the graph would not fit them any more"
        raise UsageError("E-OPTION-NODES", None, why, hint="candle-convert graph rename changes the names of a graph")


def refuse_graphs(graph: Graph, format: Format, output: Path) -> None:
    """UsageError for a model of several graphs where the output has weights alone, and for one made of several
    models."""
    if model_files.whole_of(graph) is not None:
        why = f"the model is {counted(len(graph.parts), 'model')}, each with files of its own: {', '.join(graph.parts)}"
        hint = "convert writes all into a directory: DIR --to safetensors or onnx; or name one of the models"
        raise UsageError("E-OUT-GRAPHS", output, why, hint=hint)
    if graph.parts and not format.graphs:
        first = next(iter(graph.parts.values()))
        raise UsageError(
            "E-OUT-GRAPHS",
            output,
            f"{format.name} files hold weights, and the model is {counted(len(graph.parts), 'graph')}: "
            f"{', '.join(graph.parts)}",
            hint=f"Convert the checkpoint that it was exported from, or one of its files, such as {first.files[0]}",
        )


def check_holdable(graph: Graph, format: Format) -> None:
    """UnsupportedError for weights that a format cannot hold, and for weights where it holds nodes."""
    wrong = {name: tensor.dtype.name for name, tensor in graph.weights.items() if tensor.dtype not in format.dtypes}
    if wrong:
        shown = ", ".join(f"{name} ({dtype})" for name, dtype in list(wrong.items())[:5])
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        quantized = any(graph.weights[name].dtype.kind == "block" for name in wrong)
        hint = "Cast them with --dtype or --tensor-type 'RE=TYPE', or leave them out with --exclude"
        if quantized:
            source = shlex.quote(graph.files[0]) if graph.files else "IN"
            hint = f"Use candle-convert dequantize {source} OUT{format.suffixes[0]}, or --dtype f16"
        why = f"{format.name} cannot hold {len(wrong)} of {counted(len(graph), 'tensor')}: {shown}{more}"
        raise UnsupportedError("E-OUT-DTYPE", None, why, hint=hint)
    parts = [name for name, tensor in graph.weights.items() if exact_nbytes(tensor.dtype, tensor.shape) is None]
    if parts and not format.ragged:
        raise UnsupportedError(
            "E-OUT-DTYPE",
            None,
            f"{format.name} cannot hold {counted(len(parts), 'tensor')} whose last byte is not full, such as "
            f"{parts[0]}",
            hint="Cast them with --tensor-type 'RE=TYPE', or leave them out with --exclude",
        )
    deep = [
        name
        for name, tensor in graph.weights.items()
        if format.max_dims is not None and len(tensor.shape) > format.max_dims
    ]
    if deep:
        raise UnsupportedError(
            "E-OUT-DIMS",
            None,
            f"{format.name} holds at most {format.max_dims} dimensions; "
            f"{counted(len(deep), 'tensor', verb='has')} more, such as "
            f"{deep[0]}",
            hint="Leave them out with --exclude",
        )
    if format.graphs and not graph.nodes and not graph.outputs:
        why = f"the model is weights without a graph, {format.name} is a graph of nodes"
        hint = "Export the model itself to ONNX, or write its weights to safetensors, gguf or npz"
        raise UnsupportedError("E-OUT-NODES", None, why, hint=hint)
