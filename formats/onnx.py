"""ONNX: a graph of operators and its weights in one protocol-buffer message, large tensors optionally in external
files.

Source: the IR specification and onnx.proto of the ONNX standard, version 14.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..runtime.base.errors import UnsupportedError
from ..runtime.base.units import counted
from ..runtime.contract.format import FileLayout, Finding, Format, Piece, ReadOptions, WriteOptions, shards
from ..runtime.ir.graph import Graph, Meta
from ..runtime.ir.opset_upgrade import upgrade
from ..runtime.tensor.dtype import BY_ONNX, STRING
from ..runtime.tensor.file import Source
from ..runtime.tensor.stored_tensor import StoredTensor
from .containers.onnx.protobuf import encode, looks_like
from .containers.onnx.reader import read_graph
from .containers.onnx.tensor import Sparse

SUFFIX = ".onnx"
DATA_SUFFIX = ".onnx_data"
MAX_MESSAGE = (1 << 31) - (1 << 16)
"""Size limit of one message in bytes: Protocol Buffers allow 2 GiB; less, since some readers copy the message with
overhead."""
SMALL = 1 << 10
"""Tensors below this many bytes stay in the model file, where shape inference looks for shapes and axes."""
PAGE, LINE = 1 << 12, 1 << 6
LARGE = 1 << 20
"""Tensors of at least `LARGE` bytes are page-aligned in the data file, to be mapped; others are aligned to a cache
line."""


def sniff(source: Source) -> bool:
    """Only fields of a model message, from the first byte to the last."""
    return looks_like(source)


def read(source: Source, options: ReadOptions) -> Graph:
    """The graph as stored; its weights are regions of the file or of external files."""
    return read_graph(source)


def prepare(graph: Graph, options: WriteOptions) -> None:
    """Convert the graph to the target opset."""
    from .containers.onnx.opset_lowering import lower

    upgrade(graph)
    lower(graph, options.opset)


def layout(graph: Graph, options: WriteOptions) -> list[FileLayout]:
    """The model file, and data files for external tensors or if the message would be too large."""
    from .containers.onnx.writer import model_of

    cut = any(limit is not None for limit in (options.shard_nbytes, options.shard_tensors, options.shard_groups))
    outside = options.external_data == "always" or (cut and options.external_data == "auto")
    if not outside:
        model = _file(f"{options.stem}{SUFFIX}", encode(model_of(graph, lambda tensor: None)))
        if model.nbytes <= MAX_MESSAGE:
            return [model]
        if options.external_data == "never":
            why = f"the model needs {counted(model.nbytes, 'byte')}, one file holds {MAX_MESSAGE:,}"
            raise UnsupportedError("E-ONNX-SIZE", None, why, hint="Use --external-data auto")
    places: dict[int, tuple[str, int]] = {}
    data = [_data_file(name, group, places) for name, group in _groups(graph, options)]
    model = _file(f"{options.stem}{SUFFIX}", encode(model_of(graph, lambda tensor: places.get(id(tensor)))))
    if model.nbytes > MAX_MESSAGE:
        raise UnsupportedError(
            "E-ONNX-SIZE",
            None,
            f"the graph alone needs {counted(model.nbytes, 'byte')}, one file holds {MAX_MESSAGE:,}",
        )
    return [model, *data]


def _groups(graph: Graph, options: WriteOptions) -> list[tuple[str, list[tuple[str, StoredTensor]]]]:
    """The data files and the weights in each, those of subgraphs included; names may repeat there."""
    found: list[tuple[str, StoredTensor]] = []
    pending = [graph]
    while pending:
        inner = pending.pop()
        found += [(name, tensor) for name, tensor in inner.weights.items() if _goes_out(tensor)]
        pending += reversed([below for node in inner.nodes for below in node.subgraphs])
    groups = [group for group in shards(found, options) if group]
    if len(groups) == 1:
        return [(f"{options.stem}{DATA_SUFFIX}", groups[0])]
    return [
        (f"{options.stem}-{number:05d}-of-{len(groups):05d}{DATA_SUFFIX}", group)
        for number, group in enumerate(groups, 1)
    ]


def _goes_out(tensor: StoredTensor) -> bool:
    return tensor.dtype != STRING and not isinstance(tensor, Sparse) and tensor.nbytes >= SMALL


def _data_file(name: str, group: Sequence[tuple[str, StoredTensor]], places: dict[int, tuple[str, int]]) -> FileLayout:
    pieces = []
    at = 0
    for _, tensor in group:
        at += -at % (PAGE if tensor.nbytes >= LARGE else LINE)
        places[id(tensor)] = (name, at)
        pieces.append(Piece(at, tensor))
        at += tensor.nbytes
    return FileLayout(name, at, tuple(pieces))


def _file(name: str, parts: Sequence[bytes | StoredTensor]) -> FileLayout:
    pieces = []
    at = 0
    for part in parts:
        pieces.append(Piece(at, part))
        at += pieces[-1].nbytes
    return FileLayout(name, at, tuple(pieces))


def check(source: Source, options: ReadOptions) -> Iterable[Finding]:
    """Violations of the standard, stale shapes, and unused parts."""
    from .containers.onnx.checker import findings

    return findings(source)


def scan(source: Source, options: ReadOptions) -> Iterable[Finding]:
    """Operators that run code on the host."""
    from .containers.onnx.checker import dangers

    return dangers(source)


def model_keys(graph: Graph) -> Mapping[str, Meta]:
    """The model's producer, version and description."""
    from .containers.onnx.metadata_edit import fields_of

    return fields_of(graph)


def edit(source: Source, graph: Graph, changes: Mapping[str, Meta], name: str) -> FileLayout:
    """The model file with other metadata; data files are untouched."""
    from .containers.onnx.metadata_edit import rewritten

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
