"""Layers of a language model on a cluster: workers hold stages and their KV caches, as actors of Dask."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....models.generation.parallel.pipeline_parallel import PipelineModel, StageModel
from ....runtime.base.errors import FileAccessError, UsageError
from ....runtime.ir.graph import Graph
from ....runtime.passes.parallel.pipeline_parallel import StagePlan, pipeline_stages
from ....runtime.session import Session
from ...load.attached_files import tokenizer_of
from ...load.bind import Model, bind_model, build_graph
from ...load.canonical_names import canonical_names
from ...load.memory_map import mapped
from ...quantize.observe_importance import Observer, observed_names, watched_graph
from ..workers import worker
from ..workers.cluster import WITHOUT_WORKERS_SECONDS, Cluster
from ..workers.opening import Opening
from ..workers.share import Share, weight_bytes

POLL_SECONDS = 2.0
"""Seconds of an unanswered call after which the worker is looked for."""


class LayerStage:
    """The layers of a language model that one worker computes; an actor with the methods of `Stage`."""

    def __init__(self, opening: Opening, plan: StagePlan, activations: str | None) -> None:
        _, graph = _graph(opening)
        self._model = StageModel(graph, plan, threads=worker.threads(), activations=activations)

    def start(self, label: int, batch: int) -> None:
        """An empty cache."""
        self._model.begin(label, batch)

    def copy(self, label: int, source: int) -> None:
        """A copy of a cache."""
        self._model.copy(label, source)

    def forget(self, labels: Sequence[int]) -> None:
        """Drop caches."""
        self._model.forget(labels)

    def store_cache_as(self, kv_type: str | None) -> None:
        """Store keys and values of later caches as this type; see `LanguageModel.store_cache_as`."""
        self._model.store_cache_as(kv_type)

    def run(self, run: tuple[Any, ...], received: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The stage's share of a run."""
        return self._model.compute(run, received)


class ObservedStage:
    """The layers of a model whose activations one worker counts; an actor."""

    def __init__(self, opening: Opening, name: str, plan: StagePlan, output: bool) -> None:
        model = bind_model(canonical_names(opening.graph(whole=True), text_only=True))
        graph, _, _ = watched_graph(model, name, observed_names(model, output))
        self._session = Session(mapped(plan.extracted(graph)), threads=worker.threads(), native=True)

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs by name."""
        names = [value.name for value in self._session.get_outputs()]
        wanted = {value.name for value in self._session.get_inputs()}
        given = {name: array for name, array in feeds.items() if name in wanted}
        return dict(zip(names, self._session.run(names, given), strict=True))


class _Remote:
    """An actor of a worker, whose methods raise FileAccessError where the worker has ended."""

    def __init__(self, cluster: Cluster, address: str, future: Any) -> None:
        self._cluster, self._address, self._actor = cluster, address, future.result()
        self._future = future
        """Held for as long as the actor is used: Dask ends what nobody holds."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return functools.partial(self._call, name)

    def _call(self, name: str, *arguments: Any) -> Any:
        from distributed import TimeoutError as DaskTimeoutError

        try:
            with self._cluster.client.as_current():
                answer = getattr(self._actor, name)(*arguments)
        except (OSError, RuntimeError) as error:
            raise _lost(self._address) from error
        while True:
            try:
                return answer.result(timeout=POLL_SECONDS)
            except (DaskTimeoutError, TimeoutError):
                if self._address not in self._cluster.addresses:
                    raise _lost(self._address) from None
            except OSError as error:  # those of files have a number, and Dask's of a connection none
                if error.errno is not None and self._address in self._cluster.addresses:
                    raise
                raise _lost(self._address) from error


def _lost(address: str) -> FileAccessError:
    hint = "Its layers and KV caches ended with it; run again"
    return FileAccessError("E-CLUSTER-LOST", None, f"the worker at {address} has ended", hint=hint)


def _graph(opening: Opening) -> tuple[Model, Graph]:
    model = bind_model(canonical_names(opening.graph(whole=True, parts=True)))
    return model, mapped(build_graph(model))


def _placed(
    cluster: Cluster, graph: Graph, plans: Sequence[StagePlan], stages: Sequence[tuple[Any, ...]], kind: type
) -> list[_Remote]:
    """An actor of `kind` on a worker of its own for the plan and the arguments of each stage of a graph; they are made
    at the same time."""
    cluster.begin(lambda: _share(graph, plans))
    deadline = time.monotonic() + WITHOUT_WORKERS_SECONDS
    while len(cluster.addresses) < len(stages):
        if time.monotonic() > deadline:
            why = f"{len(stages)} workers are needed"
            raise UsageError("E-OPTION", None, why, found=len(cluster.addresses), hint="Start more workers")
        time.sleep(0.1)
    addresses = sorted(cluster.addresses)[: len(stages)]
    futures = [
        cluster.client.submit(kind, *arguments, actor=True, workers=[address], pure=False)
        for address, arguments in zip(addresses, stages, strict=True)
    ]
    return [_Remote(cluster, address, future) for address, future in zip(addresses, futures, strict=True)]


def _share(graph: Graph, plans: Sequence[StagePlan]) -> Share:
    """The weights of the largest stage."""
    return Share(len(plans), max(weight_bytes(plan.extracted(graph)) for plan in plans), held=True, unit="stage")


def pipelined_model(cluster: Cluster, opening: Opening, count: int, activations: str | None) -> PipelineModel:
    """A language model whose layers `count` workers share; this process reads no weights.

    Raises UnsupportedError for models that cannot be cut between layers, UsageError for fewer workers than stages.
    """
    source = opening.graph(whole=True, parts=True)
    model = bind_model(canonical_names(source))
    graph = build_graph(model)
    plans = pipeline_stages(graph, count)
    stages = _placed(cluster, graph, plans, [(opening, plan, activations) for plan in plans], LayerStage)
    return PipelineModel(
        graph,
        plans,
        stages,
        activations=activations,
        read=functools.partial(tokenizer_of, source),
        context=model.config.values.get("context"),
    )


class _StagedSession:
    """A graph whose stages workers compute, with the interface of a session."""

    def __init__(self, graph: Graph, stages: Sequence[_Remote]) -> None:
        self._names, self._stages = [value.name for value in graph.outputs], stages

    def run(self, names: None, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """All outputs."""
        values = dict(feeds)
        for stage in self._stages:
            values |= stage.run(values)
        return [values[name] for name in self._names]


def pipelined_observer(cluster: Cluster, opening: Opening, count: int, model: Model, output: bool) -> Observer:
    """An observer of a model whose layers `count` workers share."""

    def opened(name: str, graph: Graph) -> _StagedSession:
        plans = pipeline_stages(graph, count)
        stages = [(opening, name, plan, output) for plan in plans]
        return _StagedSession(graph, _placed(cluster, graph, plans, stages, ObservedStage))

    return Observer(model, output=output, threads=None, placed={}, opened=opened)
