"""Networks of sounds: ONNX files whose task follows from their inputs and outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ...models.pipelines.audio.audio_tasks import run_audio_model
from ...runtime.base.errors import UsageError
from ...runtime.contract.architecture import MODEL, RunOptions
from ...runtime.ir.graph import Graph, Value
from ...runtime.plugin.discovery import Plugins
from .memory_map import mapped

SIGNATURES = Plugins("models.pipelines.audio", "SIGNATURES")
"""Inputs and outputs that tell a task: pairs of names with numbers of dimensions, None for any."""


def audio_task(graph: Graph) -> str | None:
    """The task of a graph of nodes that takes sounds; None for other graphs."""
    for task in SIGNATURES.names():
        for inputs, outputs in SIGNATURES.load(task):
            if _fits(graph.inputs, inputs) and _fits(graph.outputs, outputs):
                return task.replace("_", "-")
    return None


def _fits(values: Sequence[Value], told: Mapping[str, int | None]) -> bool:
    ranks = {value.name: None if value.shape is None else len(value.shape) for value in values}
    return set(ranks) == set(told) and all(rank in (None, ranks[name]) for name, rank in told.items())


def run_audio_network(graph: Graph, options: RunOptions, known: str, task: str | None) -> Any:
    """The graph as a model of sounds; UsageError if another task is asked for than `known`."""
    if task is not None and task != known:
        path = graph.files[0] if graph.files else None
        raise UsageError("E-ARCH-TASK", path, f"the model does not support the task {task!r}", expected=known)
    return run_audio_model({MODEL: mapped(graph)}, dataclasses.replace(options, task=known))
