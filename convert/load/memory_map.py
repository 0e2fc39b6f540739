"""Mapping: models that run from their files, without copies of the weights that lie there as a run needs them."""

from __future__ import annotations

from ...runtime.ir.graph import Graph
from ...runtime.tensor.storage import Mapped, Region
from ...runtime.tensor.stored_tensor import StoredTensor

SMALLEST = 1 << 16
"""Bytes of the smallest weight that is mapped."""


def mapped(graph: Graph) -> Graph:
    """The same graph, whose weights lie in its files as they are and are not copied into memory."""
    for name, tensor in graph.weights.items():
        storage, alignment = tensor.storage, max(1, tensor.dtype.bits // 8)
        if isinstance(storage, Region) and storage.nbytes >= SMALLEST and storage.offset % alignment == 0:
            graph.weights[name] = StoredTensor(tensor.dtype, tensor.shape, Mapped(storage))
    return graph
