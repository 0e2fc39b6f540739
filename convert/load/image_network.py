"""Networks of pictures: ONNX files with an input of pixels, and perhaps a mask of padding, whose task follows from
their outputs or metadata."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...models.pipelines.image.image_model import MASK
from ...models.pipelines.image.image_tasks import run_image_model
from ...models.preprocess.as_nodes import BYTES, PIXELS
from ...models.preprocess.ultralytics_export import DETECTORS, export_of
from ...models.schema.network_hyperparameters import IMAGE_CLASSIFICATION, IMAGE_FEATURES
from ...runtime.base.errors import UsageError
from ...runtime.contract.architecture import MODEL, RunOptions
from ...runtime.ir.graph import Graph
from ...runtime.passes.weights.rename_values import Rename
from ...runtime.plugin.discovery import Plugins
from ...runtime.tensor.dtype import F32
from .memory_map import mapped

IMAGES = "images"
"""Name of the input in exports of ultralytics."""
OUTPUTS = Plugins("models.pipelines.image", "OUTPUTS")
"""Outputs that tell a task."""


def image_task(graph: Graph) -> str | None:
    """The task of a graph of nodes that takes pictures; None for other graphs."""
    inputs = {value.name for value in graph.inputs} - {MASK}
    if len(inputs) != 1 or not inputs <= {PIXELS, BYTES, IMAGES}:
        return None
    export = export_of(graph.metadata)
    if export is not None:
        return "object-detection" if export.task in DETECTORS else None
    ranks = {value.name: None if value.shape is None else len(value.shape) for value in graph.outputs}

    def fits(told: Mapping[str, int | None]) -> bool:
        return all(name in ranks and rank in (None, ranks[name]) for name, rank in told.items())

    found = [(told, task) for task in OUTPUTS.names() for told in OUTPUTS.load(task) if fits(told)]
    if not found:
        return None
    _, task = max(found, key=lambda each: (len(each[0]), set(each[0].values()) != {None}))  # the most specific
    return task.replace("_", "-")


ASKED = {IMAGE_CLASSIFICATION: "logits", IMAGE_FEATURES: "pooler_output"}
"""The output of tasks of one vector an image, which may be asked for by name."""
PIXELS_RANK, VECTORS_RANK = 4, 2


def asked_image_task(graph: Graph, task: str | None) -> str | None:
    """`task` if a graph of nodes whose names tell none is able to do it: with one input of pixels, and one output of
    vectors, which gets the name that it has in this task. None for other graphs and tasks."""
    inputs = [value for value in graph.inputs if value.name not in graph.weights]
    if task not in ASKED or len(inputs) != 1 or len(graph.outputs) != 1:
        return None
    (pixels,), (vectors,) = inputs, graph.outputs
    ranks = [None if value.shape is None else len(value.shape) for value in (pixels, vectors)]
    if pixels.dtype not in (None, F32) or ranks[0] not in (None, PIXELS_RANK) or ranks[1] not in (None, VECTORS_RANK):
        return None
    if vectors.name != ASKED[task]:
        Rename({vectors.name: ASKED[task]}).run(graph)
    return task


def run_image_network(graph: Graph, options: RunOptions, known: str, task: str | None) -> Any:
    """The graph as a model of pictures; UsageError if another task is asked for than `known`."""
    if task is not None and task != known:
        path = graph.files[0] if graph.files else None
        raise UsageError("E-ARCH-TASK", path, f"the model does not support the task {task!r}", expected=known)
    return run_image_model({MODEL: mapped(graph)}, dataclasses.replace(options, task=known))
