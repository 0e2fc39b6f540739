"""Models whose graphs are in files of their own: how the files are called, and what runs the graphs together.

These graphs have nodes and are recognized by their signatures, as exporters write them without hyper-parameters. A
`Part` is bound from a configuration and the names of weights, which such files lack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..base.dataclass import dataclass
from ..base.errors import UsageError
from ..ir.graph import Graph
from .architecture import RunOptions


@dataclass(frozen=True)
class Signature:
    """The inputs of a graph, and outputs that it has among others, by name; `optional` are inputs that it may have.
    Names of inputs that it may have any number of begin with `prefixes`."""

    inputs: frozenset[str]
    outputs: frozenset[str]
    optional: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def fits(self, graph: Graph) -> bool:
        """Whether a graph has these inputs and outputs."""
        inputs, outputs = ({value.name for value in values} for values in (graph.inputs, graph.outputs))
        inputs = {name for name in inputs if not name.startswith(self.prefixes)}
        return self.inputs <= inputs <= self.inputs | self.optional and outputs >= self.outputs


@dataclass(frozen=True)
class GraphFiles:
    """The graphs of a model, each in a file with the graph's name.

    The module that runs such models declares one as `GRAPH_FILES`, and mentions the names of the graphs in quotes.

    Attributes:
        task: what the model is used for.
        graphs: the graphs by name; a variant of the last one that is not optional, such as ``NAME_quantized``, goes
            with the same variant of the others.
        run: makes the runnable object from the graphs by name, as `Task.run` does.
        optional: names of graphs that a folder may lack.
        alone: whether a graph is of use without the others.
        modules: whether weights without nodes are stored in such files too, named without their module.
    """

    task: str
    graphs: Mapping[str, Signature]
    run: Callable[[Mapping[str, Graph], RunOptions], Any]
    optional: tuple[str, ...] = ()
    alone: bool = False
    modules: bool = False

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of the graphs that a folder has to have."""
        return tuple(name for name in self.graphs if name not in self.optional)

    def check(self, graphs: Mapping[str, Graph]) -> None:
        """Raise UsageError for a graph that has other inputs or outputs than its name says."""
        for name, graph in graphs.items():
            signature = self.graphs[name]
            if not signature.fits(graph):
                path = graph.files[0] if graph.files else None
                expected = f"{_listed(signature.inputs)} to {_listed(signature.outputs)}"
                found = " to ".join(_listed(value.name for value in each) for each in (graph.inputs, graph.outputs))
                why = f"not the graph {name} of a model for {self.task}"
                raise UsageError("E-MODEL-OUTPUT", path, why, expected=expected, found=found)


def _listed(names: Any) -> str:
    return ", ".join(sorted(names))
