"""ONNX: a graph of operators and its weights in one protocol-buffer message, large tensors optionally in files beside it.

Source: the IR specification and onnx.proto of the ONNX standard, version 14.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..runtime.dtype import BY_ONNX, STRING
from ..runtime.errors import UnsupportedError
from ..runtime.format import FileLayout, Finding, Format, Piece, ReadOptions, WriteOptions, shards
from ..runtime.graph import Graph, Meta
from ..runtime.source import Source
from ..runtime.tensor import Tensor
from ..runtime.upgrade import upgrade
from .containers.onnx_graph import read_graph
from .containers.onnx_tensor import Sparse
from .containers.onnx_wire import encode, looks_like

SUFFIX = ".onnx"
DATA_SUFFIX = ".onnx.data"
MOST = (1 << 31) - (1 << 16)
"""Bytes of one message, which Protocol Buffers limit to 2 GiB; a little less, since some readers copy it with more around it."""
SMALL = 1 << 10
"""Bytes below which a tensor stays in the model file, where shape inference looks for shapes and axes."""
PAGE, LINE = 1 << 12, 1 << 6
LARGE = 1 << 20
"""Tensors that are worth mapping begin at a page of the data file, others at a cache line."""


def sniff(source: Source) -> bool:
    """Fields of a model message from the first byte to the last."""
    return looks_like(source)


def read(source: Source, options: ReadOptions) -> Graph:
    """The graph as the file has it; its weights are regions of the file or of files beside it."""
    return read_graph(source)


def prepare(graph: Graph, options: WriteOptions) -> None:
    """Take the graph to the opset that is written."""
    from .containers.onnx_opsets import USUAL, lower

    upgrade(graph)
    before = graph.opsets.get("")
    lower(graph, options.opset)
    if options.opset is None and graph.opsets[""] != before and graph.nodes:
        why = "the lowest that has all it needs" if graph.opsets[""] > USUAL else "the lowest that is written unless --opset says otherwise"
        graph.note("W-ONNX-OPSET", f"written for opset {graph.opsets['']}, {why}")


def layout(graph: Graph, options: WriteOptions) -> list[FileLayout]:
    """The model file, and data files where tensors are to be outside or the message would be too large."""
    from .containers.onnx_export import model_of

    cut = any(limit is not None for limit in (options.shard_nbytes, options.shard_tensors, options.shard_groups))
    outside = options.external_data == "always" or (cut and options.external_data == "auto")
    if not outside:
        model = _file(f"{options.stem}{SUFFIX}", encode(model_of(graph, lambda tensor: None)))
        if model.nbytes <= MOST:
            return [model]
        if options.external_data == "never":
            raise UnsupportedError(
                "E-ONNX-SIZE", None, f"the model needs {model.nbytes:,} bytes, one file holds {MOST:,}", hint="Use --external-data auto"
            )
    places: dict[int, tuple[str, int]] = {}
    data = [_data_file(name, group, places) for name, group in _groups(graph, options)]
    model = _file(f"{options.stem}{SUFFIX}", encode(model_of(graph, lambda tensor: places.get(id(tensor)))))
    if model.nbytes > MOST:
        raise UnsupportedError("E-ONNX-SIZE", None, f"the graph alone needs {model.nbytes:,} bytes, one file holds {MOST:,}")
    return [model, *data]


def _groups(graph: Graph, options: WriteOptions) -> list[tuple[str, list[tuple[str, Tensor]]]]:
    """The data files and the weights in each, those of subgraphs included; names may repeat there."""
    found: list[tuple[str, Tensor]] = []
    waiting = [graph]
    while waiting:
        inner = waiting.pop()
        found += [(name, tensor) for name, tensor in inner.weights.items() if _goes_out(tensor)]
        waiting += reversed([below for node in inner.nodes for below in node.subgraphs])
    groups = [group for group in shards(found, options) if group]
    if len(groups) == 1:
        return [(f"{options.stem}{DATA_SUFFIX}", groups[0])]
    return [(f"{options.stem}-{number:05d}-of-{len(groups):05d}{DATA_SUFFIX}", group) for number, group in enumerate(groups, 1)]


def _goes_out(tensor: Tensor) -> bool:
    return tensor.dtype != STRING and not isinstance(tensor, Sparse) and tensor.nbytes >= SMALL


def _data_file(name: str, group: Sequence[tuple[str, Tensor]], places: dict[int, tuple[str, int]]) -> FileLayout:
    pieces = []
    at = 0
    for _, tensor in group:
        at += -at % (PAGE if tensor.nbytes >= LARGE else LINE)
        places[id(tensor)] = (name, at)
        pieces.append(Piece(at, tensor))
        at += tensor.nbytes
    return FileLayout(name, at, tuple(pieces))


def _file(name: str, parts: Sequence[bytes | Tensor]) -> FileLayout:
    pieces = []
    at = 0
    for part in parts:
        pieces.append(Piece(at, part))
        at += pieces[-1].nbytes
    return FileLayout(name, at, tuple(pieces))


def check(source: Source, options: ReadOptions) -> Iterable[Finding]:
    """Rules of the standard, stale shapes, and what nothing uses."""
    from .containers.onnx_check import findings

    return findings(source)


def scan(source: Source, options: ReadOptions) -> Iterable[Finding]:
    """Operators that run code of the host."""
    from .containers.onnx_check import dangers

    return dangers(source)


def model_keys(graph: Graph) -> Mapping[str, Meta]:
    """Who made the model, and what it says of itself."""
    from .containers.onnx_metadata import fields_of

    return fields_of(graph)


def edit(source: Source, graph: Graph, changes: Mapping[str, Meta], name: str) -> FileLayout:
    """The model file with other metadata; data files stay where they are."""
    from .containers.onnx_metadata import rewritten

    return rewritten(source, graph, changes, name)


FORMAT = Format(
    name="onnx",
    title="ONNX, weights inside or in files beside it",
    suffixes=(SUFFIX,),
    sniff=sniff,
    read=read,
    layout=layout,
    prepare=prepare,
    dtypes=frozenset(BY_ONNX.values()),
    graphs=True,
    check=check,
    scan=scan,
    ragged=True,
    model_keys=model_keys,
    edit=edit,
)
