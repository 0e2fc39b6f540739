"""Graph verification: invariants that hold before and after every pass."""

from __future__ import annotations

from ...ir.graph import Graph, Value


def check(graph: Graph) -> None:
    """Raise AssertionError unless every value is defined once and before its uses, every weight has a value, and names
    are unique."""
    pending: list[tuple[Graph, frozenset[Value]]] = [(graph, frozenset())]
    while pending:
        inner, outer = pending.pop()
        for name in inner.weights:
            assert name in inner.values, f"weight {name!r} has no value"
        known = {*inner.inputs, *(inner.values[name] for name in inner.weights)}
        for node in inner.nodes:
            for value in node.inputs:
                assert value is None or value in known or value in outer, (
                    f"{node.op.name} {node.name!r} uses {value.name!r} before it is made"
                )
            pending += [(below, outer | known) for below in node.subgraphs]
            for value in node.outputs:
                assert not value.name or value not in known, f"{value.name!r} is computed twice"
                known.add(value)
        for value in inner.outputs:
            assert value in known or value in outer, f"output {value.name!r} is never made"
        named = [value.name for value in known if value.name]
        assert len(named) == len(set(named)), "two values have one name"
