"""ONNX: a graph of operators and its weights in one protocol-buffer message, large tensors optionally in files beside it.

Source: the IR specification and onnx.proto of the ONNX standard, version 14.
"""

from __future__ import annotations

from ..runtime.format import Format, ReadOptions
from ..runtime.graph import Graph
from ..runtime.source import Source
from .containers.onnx_graph import read_graph
from .containers.onnx_wire import looks_like

SUFFIX = ".onnx"


def sniff(source: Source) -> bool:
    """Fields of a model message from the first byte to the last."""
    return looks_like(source)


def read(source: Source, options: ReadOptions) -> Graph:
    """The graph as the file has it; its weights are regions of the file or of files beside it."""
    return read_graph(source)


FORMAT = Format(
    name="onnx",
    title="ONNX, weights inside or in files beside it",
    suffixes=(SUFFIX,),
    sniff=sniff,
    read=read,
    graphs=True,
    ragged=True,
)
