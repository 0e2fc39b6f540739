"""Npy: one array of numpy's. It has no name, and takes that of its file."""

from __future__ import annotations

from pathlib import Path

from ..runtime.format import Format, ReadOptions
from ..runtime.graph import Graph
from ..runtime.source import Source
from ..runtime.storage import Region
from .containers.npy import MAGIC, Place, read_header, tensor


def sniff(source: Source) -> bool:
    """The six bytes that numpy begins with."""
    return source.head(len(MAGIC)) == MAGIC


def read(source: Source, options: ReadOptions) -> Graph:
    """The array as a region of the file."""
    storage = Region(source, 0, source.size)
    header = read_header(storage, Place(source, "the array", 0), void=options.void_dtype)
    return Graph(format="npy", files=[source.path], weights={Path(source.path).stem: tensor(storage, header)})


FORMAT = Format(name="npy", title="NumPy arrays, one a file", suffixes=(".npy",), sniff=sniff, read=read)
