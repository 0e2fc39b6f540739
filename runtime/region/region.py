"""Region: the nodes that one plan computes, with inputs, outputs and weights."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from ..base.dataclass import dataclass
from ..base.huge_pages import HugePages
from ..ir.clone import captures, needed
from ..ir.graph import Graph, Node, Value
from ..tensor.stored_tensor import StoredTensor
from ..tensor.weight_array import Blocks, LazyWeight, weight

W = TypeVar("W")
HostWeight: TypeAlias = np.ndarray | Blocks | LazyWeight
"""A weight as the CPU holds it."""


@dataclass(eq=False)
class Region(Generic[W]):
    """Nodes that compute outputs from inputs and weights.

    Attributes:
        nodes: in an order in which they can run.
        inputs: fed ones first; for a subgraph, the values that it captures follow.
        packed: packed weights by layout, shared by all regions of a session.
        paths: for each node, the path of its subgraph; by default all nodes are in the outermost graph.
        inplace_inputs: names of inputs whose arrays may be overwritten and returned as outputs.
    """

    nodes: Sequence[Node]
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    weights: Mapping[Value, W]
    packed: dict[Any, Any]
    paths: Sequence[str] = ()
    inplace_inputs: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.paths = self.paths or [""] * len(self.nodes)


def region_of(graph: Graph, packed: dict[Any, Any], inplace_inputs: Collection[str] = ()) -> Region[HostWeight]:
    """The region of a whole graph; weights that are inputs too are fed."""
    return Region(
        graph.nodes,
        graph.inputs,
        graph.outputs,
        host_weights(graph, packed),
        packed,
        inplace_inputs=frozenset(inplace_inputs),
    )


def subregion_of(
    graph: Graph, packed: dict[Any, Any], known: Mapping[Value, HostWeight], path: str
) -> Region[HostWeight]:
    """The region of a subgraph at a path; captured values that are not known are fed after its inputs."""
    weights = host_weights(graph, packed)
    used = captures(graph)
    weights.update((value, known[value]) for value in used if value in known)
    inputs = [*graph.inputs, *(value for value in used if value not in known)]
    return Region(graph.nodes, inputs, graph.outputs, weights, packed, [path] * len(graph.nodes))


def host_weights(graph: Graph, packed: dict[Any, Any]) -> dict[Value, HostWeight]:
    """The used weights of a graph that are not inputs. Weights that share file bytes are held once, in `packed`."""
    reserve: HugePages = packed.setdefault(HugePages, HugePages())
    found = {}
    for value, tensor in used_weights(graph):
        key = (tensor.storage.key or id(tensor), tensor.dtype, tensor.shape)
        if key not in packed:
            packed[key] = (weight(tensor, reserve), tensor)
        found[value] = packed[key][0]
    return found


def used_weights(graph: Graph) -> Iterator[tuple[Value, StoredTensor]]:
    """Weights that nodes use or that are outputs, without those that are inputs."""
    used = {value for node in graph.nodes for value in needed(node)} | set(graph.outputs)
    for name, tensor in graph.weights.items():
        value = graph.values.get(name)
        if value is not None and value in used and value not in graph.inputs:
            yield value, tensor
