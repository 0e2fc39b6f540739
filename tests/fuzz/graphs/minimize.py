"""Minimizing: a graph that fails becomes one of few nodes that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from candle_convert.tests.fuzz.graphs.reference import evaluate
from candle_convert.tests.fuzz.graphs.small_graph import Input, Node, SmallGraph, type_of


def minimized(graph: SmallGraph, fails: Callable[[SmallGraph], bool]) -> SmallGraph:
    """The smallest graph found by changes that keep it failing."""
    changed = True
    while changed:
        changed = False
        for candidate in _smaller(graph):
            if _works(candidate, fails):
                graph, changed = candidate, True
                break
    return graph


def _works(graph: SmallGraph, fails: Callable[[SmallGraph], bool]) -> bool:
    try:
        for feeds in graph.feeds():
            evaluate(graph, feeds)
        return fails(graph)
    except Exception:
        return False


def _smaller(graph: SmallGraph) -> Iterator[SmallGraph]:
    """Graphs with less: runs, outputs, nodes, symbols, elements."""
    runs = len(graph.feeds())
    if runs > 1:
        for run in range(runs):
            yield replace(graph, inputs={key: _only(item, run) for key, item in graph.inputs.items()})
    if len(graph.outputs) > 1:
        for name in graph.outputs:
            yield replace(graph, outputs=(name,)).needed()
        for name in graph.outputs:
            yield replace(graph, outputs=tuple(other for other in graph.outputs if other != name)).needed()
    values = [evaluate(graph, feeds) for feeds in graph.feeds()]
    made = [name for node in graph.nodes for name in node.outputs if name]
    for name in made[::-1]:  # what an output needs becomes an input
        if name not in graph.outputs and all(isinstance(run[name], np.ndarray) for run in values):
            yield _fed(graph, name, tuple(run[name] for run in values))
    for node in graph.nodes[::-1]:  # a node becomes one of its inputs
        for name in node.inputs:
            fits = name and len(node.outputs) == 1 and name not in graph.outputs
            if (
                fits
                and values[0][name].dtype == values[0][node.outputs[0]].dtype
                and node.outputs[0] not in graph.outputs
            ):
                yield _renamed(graph, node, node.outputs[0], name)
    for name in made:
        if name not in graph.outputs and len(graph.outputs) == 1:
            types = {**graph.types, name: type_of(values[0][name])}
            yield replace(graph, outputs=(name,), types=types).needed()
    for index, node in enumerate(graph.nodes):
        for key, body in node.attributes.items():
            if isinstance(body, SmallGraph):
                for inner in range(len(body.nodes)):
                    smaller = _without(body, inner)
                    if smaller is not None:
                        changed = replace(node, attributes={**node.attributes, key: smaller})
                        yield replace(graph, nodes=(*graph.nodes[:index], changed, *graph.nodes[index + 1 :])).needed()
    for name, item in graph.inputs.items():
        if item is not None and any(isinstance(dim, str) for dim in item.dims):
            known = tuple(item.arrays[0].shape)
            if all(array.shape == known for array in item.arrays):
                yield replace(graph, inputs={**graph.inputs, name: Input(known, item.arrays)})


def _only(item: Input | None, run: int) -> Input | None:
    return item and Input(item.dims, item.arrays[run : run + 1])


def _fed(graph: SmallGraph, name: str, arrays: tuple[np.ndarray, ...]) -> SmallGraph:
    """The graph with a value as an input; what else its node computes must not be needed."""
    nodes = tuple(_instead(node, name) for node in graph.nodes)
    dims = tuple(
        length if all(array.shape[axis] == length for array in arrays) else f"{name}_{axis}"
        for axis, length in enumerate(arrays[0].shape)
    )
    changed = replace(graph, nodes=nodes, inputs={**graph.inputs, name: Input(dims, arrays)})
    return changed.needed()


def _instead(node: Node, name: str) -> Node:
    unused = f"{name}_unused" if node.op == "Split" else ""  # onnxruntime crashes where an output of Split has no name
    return replace(node, outputs=tuple(unused if output == name else output for output in node.outputs))


def _renamed(graph: SmallGraph, gone: Node, old: str, new: str) -> SmallGraph:
    nodes = tuple(
        replace(node, inputs=tuple(new if name == old else name for name in node.inputs))
        for node in graph.nodes
        if node is not gone
    )
    return replace(graph, nodes=nodes).needed()


def _without(body: SmallGraph, index: int) -> SmallGraph | None:
    """A subgraph in which a node is one of its inputs."""
    node = body.nodes[index]
    if len(node.outputs) != 1 or not node.inputs or node.outputs[0] in body.outputs:
        return None
    return replace(_renamed(body, node, node.outputs[0], node.inputs[0]), inputs=body.inputs)
