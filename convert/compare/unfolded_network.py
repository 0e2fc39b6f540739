"""The networks of a checkpoint as its file stores them, batch norms and parallel branches apart: what exported networks
are compared with."""

from __future__ import annotations

from collections.abc import Sequence

from ...models.preprocess.as_nodes import BYTES, take_bytes
from ...models.preprocess.stated_preparation import letterbox_of, stated_preparation
from ...runtime.base.errors import UnsupportedError, UsageError
from ...runtime.contract.architecture import UNFOLDED
from ...runtime.ir.graph import Graph
from ..load.bind import Model, bind_model
from ..load.recognise import identified
from ..open.graph_files import stem


def unfolded_networks(checkpoint: Graph, network: Graph) -> dict[str, tuple[Graph, Graph]]:
    """The graphs of a checkpoint of pictures or sounds, each with the one of `network` that has the same outputs, by
    the names of the latter's files if these are several; they prepare pictures if `network` does. Empty for other
    checkpoints.

    Raises UsageError if the model has no such graph, and what `bind_model` raises.
    """
    try:
        architecture, _, _ = identified(checkpoint)
    except UnsupportedError:
        return {}
    if not architecture.modules:
        return {}
    model = bind_model(checkpoint).with_settings(UNFOLDED)
    graphs = {stem(name, graph): graph for name, graph in model.graphs().items()}
    found = {}
    for name, part in (network.parts or {"": network}).items():
        likely = [graphs[name]] if name in graphs else list(graphs.values())
        found[name] = (_of_outputs(likely, part, model), part)
        if any(value.name == BYTES for value in part.inputs):
            take_bytes(found[name][0], stated_preparation(checkpoint, letterbox_of(model.config)))
    return found


def _of_outputs(graphs: Sequence[Graph], network: Graph, model: Model) -> Graph:
    """The graph that has the outputs of a network."""
    wanted = [value.name for value in network.outputs]
    found = next((graph for graph in graphs if [value.name for value in graph.outputs] == wanted), None)
    if found is None:
        outputs = " or ".join(", ".join(value.name for value in graph.outputs) for graph in graphs)
        why = f"not a network of the {model.architecture.title} model for {model.task.name}"
        path = network.files[0] if network.files else None
        raise UsageError("E-VERIFY-GRAPHS", path, why, expected=outputs, found=", ".join(wanted))
    return found
