"""Companion weights: files of weights that are attached to a model, such as Dense modules of sentence-transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...formats.containers.nested_file import spool
from ...formats.safetensors import FORMAT
from ...runtime.base.errors import FormatError
from ...runtime.contract.format import ReadOptions, WriteOptions
from ...runtime.ir.graph import Graph
from ...runtime.tensor.file import Source
from ...runtime.tensor.storage import Held, Region, Storage
from ...runtime.tensor.stored_tensor import StoredTensor
from .detect_format import detect
from .open_model import read_file

PICKLE, SAFE = "pytorch_model.bin", "model.safetensors"


def companion_weights(graph: Graph, name: str) -> Mapping[str, StoredTensor]:
    """The weights in a file that is attached to a model, by the file's name."""
    storage = graph.attachments[name]
    if isinstance(storage, Region):
        return read_file(Path(storage.source.path), ReadOptions()).weights
    if not graph.files:
        raise FormatError("E-COMPANION", None, f"{name} is not a file of its own")
    held = spool(Source(graph.files[0]), name, [storage.read(0, storage.nbytes)])  # within an ONNX file
    return detect(held).read(held, ReadOptions()).weights


def without_pickles(graph: Graph) -> dict[str, Storage]:
    """The attached files of a model, weights in pickles as safetensors."""
    return dict(
        (f"{name.removesuffix(PICKLE)}{SAFE}", safetensors_file(companion_weights(graph, name)))
        if name.endswith(f"/{PICKLE}")
        else (name, storage)
        for name, storage in graph.attachments.items()
    )


def safetensors_file(weights: Mapping[str, StoredTensor]) -> Held:
    """The content of a safetensors file of weights."""
    assert FORMAT.layout is not None
    (file,) = FORMAT.layout(Graph(weights=dict(weights), metadata={"format": "pt"}), WriteOptions("model"))
    content = bytearray(file.nbytes)
    for piece in file.pieces:
        data = piece.data.storage.read(0, piece.nbytes) if isinstance(piece.data, StoredTensor) else piece.data
        content[piece.offset : piece.offset + piece.nbytes] = data
    return Held(bytes(content))
