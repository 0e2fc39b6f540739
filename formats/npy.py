"""NumPy ``.npy`` files: one array, named after its file."""

from __future__ import annotations

from pathlib import Path

from ..runtime.contract.format import Format, ReadOptions
from ..runtime.ir.graph import Graph
from ..runtime.tensor.file import Source
from ..runtime.tensor.storage import Region
from .containers.npy import MAGIC, ArrayLocation, read_header, tensor


def sniff(source: Source) -> bool:
    """The magic bytes."""
    return source.head(len(MAGIC)) == MAGIC


def read(source: Source, options: ReadOptions) -> Graph:
    """The array as a region of the file."""
    storage = Region(source, 0, source.size)
    header = read_header(storage, ArrayLocation(source, "the array", 0), void=options.void_dtype)
    return Graph(format="npy", files=[source.path], weights={Path(source.path).stem: tensor(storage, header)})


FORMAT = Format(name="npy", title="NumPy arrays, one a file", suffixes=(".npy",), sniff=sniff, read=read)
