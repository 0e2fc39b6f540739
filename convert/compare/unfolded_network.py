"""The network of a checkpoint as its file stores it, batch norms and parallel branches apart: what an exported network
is compared with."""

from __future__ import annotations

import dataclasses

from ...models.layers.image.conv import KEEP_NORMS
from ...models.preprocess.as_nodes import BYTES, take_bytes
from ...models.preprocess.stated_preparation import letterbox_of, stated_preparation
from ...runtime.base.errors import UnsupportedError, UsageError
from ...runtime.contract.architecture import Config
from ...runtime.ir.graph import Graph
from ..load.native_model import identified, modelled


def unfolded_network(checkpoint: Graph, network: Graph) -> Graph | None:
    """The graph of a checkpoint of pictures or sounds that has the outputs of `network`; it prepares pictures if
    `network` does. None for other checkpoints.

    Raises UsageError if the model has no such graph, and what `modelled` raises.
    """
    try:
        architecture, _, _ = identified(checkpoint)
    except UnsupportedError:
        return None
    if not architecture.parts:
        return None
    model = modelled(checkpoint)
    kept = {"keep_branches": True, KEEP_NORMS: True}
    model = dataclasses.replace(model, config=Config({**model.config.values, **kept}))
    wanted = [value.name for value in network.outputs]
    graphs = model.graphs()
    found = next((graph for graph in graphs.values() if [value.name for value in graph.outputs] == wanted), None)
    if found is None:
        outputs = " or ".join(", ".join(value.name for value in graph.outputs) for graph in graphs.values())
        why = f"not a network of the {model.architecture.title} model for {model.task.name}"
        path = network.files[0] if network.files else None
        raise UsageError("E-VERIFY-GRAPHS", path, why, expected=outputs, found=", ".join(wanted))
    if any(value.name == BYTES for value in network.inputs):
        take_bytes(found, stated_preparation(checkpoint, letterbox_of(model.config)))
    return found
