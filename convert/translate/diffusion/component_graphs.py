"""Components of pipelines as Optimum exports them: a folder for each graph, such as ``unet`` and ``vae_decoder``."""

from __future__ import annotations

from ....runtime.base.errors import UnsupportedError
from ....runtime.contract.architecture import COMPONENT
from ....runtime.ir.graph import Graph
from ...load.canonical_names import canonical_names
from ...load.recognise import identified


def component_graphs(whole: Graph) -> dict[str, tuple[str, Graph]]:
    """By folder: the name of the graph, and the component that it is of.

    Raises UnsupportedError for a component that Optimum does not export.
    """
    found: dict[str, tuple[str, Graph]] = {}
    for part, graph in whole.parts.items():
        if graph.parts:
            found |= {part + _end(name): (name, each) for name, each in graph.parts.items()}
        else:
            found |= {
                part + _end(name): (name, graph) for name in ((COMPONENT,) if graph.nodes else _names(part, graph))
            }
    return found


def _names(part: str, graph: Graph) -> tuple[str, ...]:
    """Names of the graphs of a component."""
    architecture, *_ = identified(canonical_names(graph))
    if architecture.component is None:
        path = graph.files[0] if graph.files else None
        why = f"{part} is a {architecture.title}, which Optimum's pipelines do not have as ONNX"
        raise UnsupportedError("E-OUT-COMPONENT", path, why, hint="Convert the folder to safetensors")
    return tuple(architecture.component.graphs)


def _end(name: str) -> str:
    """The suffix of a graph's folder after the name of its component."""
    return name.removeprefix(COMPONENT)
