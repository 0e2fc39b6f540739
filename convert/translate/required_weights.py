"""Weights that llama.cpp requires and a model lacks: the head of a tied model, biases of a model without them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ...runtime.contract.architecture import GGUF, TEXT_GENERATION, Config, Weight, sizes, weight_slots
from ...runtime.ir.graph import Graph
from ...runtime.tensor.storage import Derived
from ...runtime.tensor.stored_tensor import StoredTensor

if TYPE_CHECKING:
    from ..load.bind import Model


def with_required_weights(graph: Graph, model: Model) -> Model:
    """The model with all weights of `Architecture.gguf_required`, for a GGUF file; `graph` gets a line about them.
    Models for other tasks than text generation have no heads."""
    from ...runtime.contract.weight_binding import list_names, unbind

    architecture, config, weights = model.architecture, model.config, model.weights
    if not architecture.gguf_required or model.task.name != TEXT_GENERATION:
        return model
    added: dict[str, StoredTensor] = {}
    for row, layer, name in weight_slots(architecture, config):
        if name not in weights and row.name in architecture.gguf_required:
            shared = architecture.gguf_required[row.name]
            added[name] = _zeros(row, config, layer) if shared is None else _copied(weights[shared])
    if not added:
        return model
    names = list_names(list(unbind(architecture, config, added, GGUF)))
    why = f"{names} added, copied or zero: llama.cpp loads no {architecture.title} model without"
    graph.event("W-REQUIRED", why)
    return dataclasses.replace(model, weights={**weights, **added})


def _zeros(row: Weight, config: Config, layer: int) -> StoredTensor:
    import numpy

    assert row.shape is not None
    return StoredTensor.of(numpy.zeros(sizes(row.shape, config, layer), numpy.float32))


def _copied(tensor: StoredTensor) -> StoredTensor:
    """The tensor with a storage that does not count as tied, which ``--tied dedupe`` drops and ``--tied error``
    refuses."""
    inner = tensor.storage
    own = Derived(inner.nbytes, inner.step, inner.read, sequential=inner.sequential)
    return StoredTensor(tensor.dtype, tensor.shape, own)
