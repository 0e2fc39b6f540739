"""Consistency: what every graph keeps before and after a pass."""

from __future__ import annotations

from ..graph import Graph, Value


def check(graph: Graph) -> None:
    """Every value is made once and before it is used, every weight has its value, no name stands for two; AssertionError otherwise."""
    waiting: list[tuple[Graph, frozenset[Value]]] = [(graph, frozenset())]
    while waiting:
        inner, outer = waiting.pop()
        for name in inner.weights:
            assert name in inner.values, f"weight {name!r} has no value"
        known = {*inner.inputs, *(inner.values[name] for name in inner.weights)}
        for node in inner.nodes:
            for value in node.inputs:
                assert value is None or value in known or value in outer, f"{node.op.name} {node.name!r} uses {value.name!r} before it is made"
            waiting += [(below, outer | known) for below in node.subgraphs]
            for value in node.outputs:
                assert not value.name or value not in known, f"{value.name!r} is computed twice"
                known.add(value)
        for value in inner.outputs:
            assert value in known or value in outer, f"output {value.name!r} is never made"
        named = [value.name for value in known if value.name]
        assert len(named) == len(set(named)), "two values have one name"
