"""Renaming of values and symbolic dimensions of a graph."""

from __future__ import annotations

from dataclasses import field

from ...base.dataclass import dataclass
from ...base.errors import UsageError
from ...ir.graph import Graph
from ..pattern.replace_nodes import graphs

TYPE = "type"
"""The key of a type as a file spells it, carried with a value; it is dropped when dimensions change."""


@dataclass(frozen=True)
class Rename:
    """Rename values and dimensions.

    Attributes:
        values: new name by old name, of inputs, outputs, weights and what is between.
        dims: new name, or a length that is fixed from now on, by the name of a symbolic dimension.
    """

    values: dict[str, str] = field(default_factory=dict)
    dims: dict[str, str | int] = field(default_factory=dict)

    def run(self, graph: Graph) -> bool:
        """Rename in place; raises UsageError for unknown or duplicate names."""
        known = set(graph.values) | {value.name for value in (*graph.inputs, *graph.outputs)}
        for old, new in self.values.items():
            if old not in known:
                raise UsageError(
                    "E-GRAPH-VALUE", None, f"no value named {old!r}", hint="candle-convert inspect lists the values"
                )
            if new in known and new not in self.values:
                why = f"a value named {new!r} already exists"
                hint = "Choose another name, or rename the existing value too"
                raise UsageError("E-GRAPH-NAME", None, why, hint=hint)
        if len(set(self.values.values())) < len(self.values):
            raise UsageError("E-GRAPH-NAME", None, "two values would get the same name", hint="Choose different names")
        for value in {*graph.values.values(), *graph.inputs, *graph.outputs}:
            value.name = self.values.get(value.name, value.name)
        graph.weights = {self.values.get(name, name): tensor for name, tensor in graph.weights.items()}
        graph.values = {value.name: value for value in graph.values.values()}
        dims = self._dims(graph)
        return bool(self.values) or dims

    def _dims(self, graph: Graph) -> bool:
        found: set[object] = set()
        for inner in graphs(graph):
            for value in {*inner.values.values(), *inner.inputs, *inner.outputs}:
                hit = [dim for dim in value.shape or () if dim in self.dims]
                if hit and value.shape is not None:
                    found.update(hit)
                    value.shape = tuple(self.dims.get(dim, dim) if isinstance(dim, str) else dim for dim in value.shape)
                    value.carried = {key: said for key, said in (value.carried or {}).items() if key != TYPE}
        for name in self.dims.keys() - found:
            raise UsageError(
                "E-GRAPH-DIM", None, f"no dimension named {name!r}", hint="candle-convert inspect shows them"
            )
        return bool(found)
