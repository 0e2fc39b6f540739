"""Memory-mapped weights: those that a file stores as a run needs them are not copied into memory."""

from __future__ import annotations

from ...runtime.ir.graph import Graph
from ...runtime.tensor.storage import Mapped, Region
from ...runtime.tensor.stored_tensor import StoredTensor

SMALLEST = 1 << 16
"""Bytes of the smallest weight that is mapped."""


def mapped(graph: Graph) -> Graph:
    """The graph with its weights mapped from its files: those of `SMALLEST` bytes or more that are aligned there."""
    for name, tensor in graph.weights.items():
        storage, alignment = tensor.storage, max(1, tensor.dtype.bits // 8)
        if isinstance(storage, Region) and storage.nbytes >= SMALLEST and storage.offset % alignment == 0:
            graph.weights[name] = StoredTensor(tensor.dtype, tensor.shape, Mapped(storage))
    return graph
