"""Bind a checkpoint to an architecture and build its graphs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import Error, FormatError, UnsupportedError, UsageError
from ...runtime.contract.architecture import (
    HF,
    MISSHAPEN,
    MODEL,
    OWN_HEAD,
    Architecture,
    Config,
    Task,
    lacks_head,
    weight_slots,
)
from ...runtime.contract.naming import WatchedWeights, check_used
from ...runtime.contract.part_rows import part_config, part_weights
from ...runtime.contract.weight_binding import HEAD_WEIGHT, bind
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from ..open.prequantized import configuration
from .canonical_names import canonical_names
from .recognise import identified


@dataclass(frozen=True)
class Model:
    """Weights that are known to be a model's.

    Attributes:
        names: whose names and layouts the file has, `HF` or `GGUF`.
        config: hyper-parameters.
        weights: under the architecture's own names.
        source: what was read.
    """

    architecture: Architecture
    names: str
    config: Config
    weights: dict[str, StoredTensor]
    source: Graph

    @property
    def task(self) -> Task:
        """The task of the model, as its file states it."""
        return self.architecture.task(self.config.values.get("task"))

    def for_task(self, name: str) -> Model:
        """The same model, used for the task of that name or alias. UsageError where the architecture does not have the
        task, or the file lacks a weight that it needs."""
        try:
            task = self.architecture.task(name)
        except KeyError:
            task = None
        if task is None or self._lacks(task):
            path = self.source.files[0] if self.source.files else None
            known = " or ".join(task.name for task in self.architecture.tasks if not self._lacks(task))
            lacks = "" if task is None else f": it has no {', '.join(self._lacks(task)[:3])}"
            why = f"the model does not support the task {name!r}{lacks}"
            raise UsageError("E-ARCH-TASK", path, why, expected=known)
        return self.with_settings({"task": task.name})

    def with_settings(self, values: Mapping[str, Any]) -> Model:
        """The same model with some hyper-parameters changed."""
        return dataclasses.replace(self, config=Config({**self.config.values, **values}))

    def nameless(self, names: str) -> list[str]:
        """The weights that files of a convention do not store."""
        slots = weight_slots(self.architecture, self.config)
        return [ours for row, _, ours in slots if ours in self.weights and not row.stored(names)]

    @property
    def lacks_head(self) -> str | None:
        """The file's name of the head that predicts tokens, if it is missing, needed and not the embedding."""
        rows = (*self.architecture.weights, *self.task.weights)
        used = any(row.name == HEAD_WEIGHT for row in rows) and not HEAD_WEIGHT.startswith(self.task.unneeded)
        return self.config.values.get(OWN_HEAD) if used and HEAD_WEIGHT not in self.weights else None

    def require_head(self) -> None:
        """FormatError for a model that lacks its head."""
        if self.lacks_head is not None:
            raise lacks_head(self.source.files[0] if self.source.files else None, self.lacks_head)

    def _lacks(self, task: Task) -> list[str]:
        """The file's names of the missing weights of a task's head."""
        missing = [row for row in task.weights if not row.optional and row.name not in self.weights]
        return [ways[0].names[0] if (ways := row.stored(self.names)) else row.name for row in missing]

    def part(self, name: str) -> Model:
        """A part as a model of its own: its configuration and weights by the names of its architecture. LookupError for
        a name that the architecture does not have, and for a part that the file lacks."""
        architecture = self.architecture.parts[name].architecture
        if not isinstance(architecture, Architecture):
            raise LookupError(f"the file lacks {name}")
        return Model(architecture, HF, part_config(self.config, name), part_weights(self.weights, name), self.source)

    def graphs(self, *, fixed: bool = True) -> dict[str, Graph]:
        """The graphs that compute the task, by name. Their weights are the same tensors.

        Args:
            fixed: whether KV caches have a fixed capacity or grow.
        """
        return {name: build_graph(self, name, fixed=fixed) for name in self.task.graphs}


def bind_model(graph: Graph, task: str | None = None) -> Model:
    """The architecture, configuration and weights of what was read.

    Args:
        task: of a model whose config.json does not state its class; None where one task alone fits its weights.

    Raises UnsupportedError for an unknown architecture, FormatError for parameters or weights that are missing, extra
    or misshapen.
    """
    graph = canonical_names(graph)
    architecture, names, config = identified(graph)
    try:
        return _bound(architecture, names, config, graph)
    except FormatError as error:
        said = configuration(graph)
        if error.code != "E-ARCH-EXTRA" or names != HF or not said or said.get("architectures"):
            raise
        fitting = list(_fitting(architecture, config, graph))
        chosen = [model for model in fitting if task in (None, model.task.name, *model.task.aliases)]
        if len(chosen) == 1:
            return chosen[0]
        fits = f"choose {' or '.join(model.task.name for model in fitting)} with predict --task, or " if fitting else ""
        error.hint = (
            f"config.json lacks architectures, the model's class, which decides its head: {fits}add it, such as "
            f'"architectures": ["BertForSequenceClassification"]; {error.hint}'
        )
        raise


def _fitting(architecture: Architecture, config: Config, graph: Graph) -> Iterator[Model]:
    """The model for each task whose head the weights have."""
    for task in architecture.tasks:
        with contextlib.suppress(Error):
            yield _bound(architecture, HF, Config({**config.values, "task": task.name}), graph)


def _bound(architecture: Architecture, names: str, config: Config, graph: Graph) -> Model:
    """The weights of what was read, bound, and the graphs of modules tried."""
    path = graph.files[0] if graph.files else None
    model = Model(architecture, names, config, bind(architecture, config, graph.weights, names, path), graph)
    if architecture.modules:
        watched = WatchedWeights(model.weights)
        try:
            dataclasses.replace(model, weights=watched).graphs()
        except MISSHAPEN as error:
            raise architecture.misshapen(path) from error
        check_used(architecture, watched, path)
    return model


def build_graph(model: Model, name: str = MODEL, *, fixed: bool = True) -> Graph:
    """One of the graphs that compute the model's task, of its variants or of its `Component`, with KV caches of a fixed
    capacity or growing ones.

    Raises UnsupportedError where the task has several graphs and none of that name.
    """
    component = model.architecture.component
    builders = {**model.task.graphs, **model.task.variants, **({} if component is None else component.graphs)}
    if name not in builders:
        path = model.source.files[0] if model.source.files else None
        why = f"{model.architecture.title} models have several graphs: {', '.join(model.task.graphs)}"
        raise UnsupportedError("E-ARCH-GRAPHS", path, why, expected="a model of one graph")
    stem = model.architecture.name if name == MODEL else f"{model.architecture.name}_{name}"
    graph = Graph(name=stem, arch=model.architecture.name, attachments=model.source.attachments)
    builders[name](graph, model.config, model.weights, fixed=fixed)
    return graph
