"""Pipeline-parallel language models: stages of layers in other processes, whose KV caches stay with their layers."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ....runtime.ir.graph import Graph, Value
from ....runtime.passes.parallel.pipeline_parallel import StagePlan
from ..kv_cache import Cache
from ..language_model import LanguageModel

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ....runtime.session import Session

Arrays = Mapping[str, np.ndarray]


class Stage(Protocol):
    """A stage in another process, which has a cache for each label."""

    def start(self, label: int, batch: int) -> None:
        """An empty cache."""
        ...

    def copy(self, label: int, source: int) -> None:
        """A copy of a cache."""
        ...

    def forget(self, labels: Sequence[int]) -> None:
        """Drop caches."""
        ...

    def store_cache_as(self, kv_type: str | None) -> None:
        """As of `LanguageModel`, for the caches of the stage."""
        ...

    def run(self, run: tuple[Any, ...], received: Arrays) -> dict[str, np.ndarray]:
        """The stage's outputs of a run, from the arguments of `LanguageModel._run` with the label of a cache, and the
        values of earlier stages."""
        ...


class PipelineModel(LanguageModel):
    """A language model whose layers other processes compute, used like one of this process, which reads no weights.

    Args:
        plans: of the stages; stages: in their order.
    """

    def __init__(self, graph: Graph, plans: Sequence[StagePlan], stages: Sequence[Stage], **options: Any) -> None:
        self._plans, self._stages = plans, stages
        self._labels: weakref.WeakKeyDictionary[Cache, int] = weakref.WeakKeyDictionary()
        self._count = 0
        self._gone: list[int] = []
        super().__init__(graph, **options)

    def session(self, output: str) -> Session:
        """No session: stages have their own."""
        return None  # type: ignore[return-value]

    def start(self, batch: int) -> Cache:
        made = Cache({}, batch)
        label = self._label(made)
        for stage in self._stages:
            stage.start(label, batch)
        return made

    def copied(self, cache: Cache) -> Cache:
        made = super().copied(cache)
        label = self._label(made)
        for stage in self._stages:
            stage.copy(label, self._labels[cache])
        return made

    def rewind(self, cache: Cache, length: int) -> bool:
        """Only to the cache's current length: stages do not truncate theirs."""
        return length == cache.length

    @property
    def can_rewind(self) -> bool:
        """As of `rewind`."""
        return False

    @property
    def can_batch(self) -> bool:
        """Stages have caches of equal lengths."""
        return False

    def store_cache_as(self, kv_type: str | None) -> None:
        for stage in self._stages:
            stage.store_cache_as(kv_type)

    def prepare(self) -> None:
        """Nothing: stages compile their kernels in their first runs."""

    def _label(self, cache: Cache) -> int:
        self._count += 1
        self._labels[cache] = self._count
        weakref.finalize(cache, self._gone.append, self._count)
        return self._count

    def _run(
        self, output: str, tokens: np.ndarray, cache: Cache, mask: ArrayLike | None, positions: ArrayLike | None
    ) -> Any:
        gone = [self._gone.pop() for _ in range(len(self._gone))]
        values: dict[str, np.ndarray] = {}
        for plan, stage in zip(self._plans, self._stages, strict=True):
            if gone:
                stage.forget(gone)
            received = {name: values[name] for name in plan.received}
            values |= stage.run((output, tokens, self._labels[cache], mask, positions), received)
        given = np.ones(tokens.shape[:2], np.int64) if mask is None else np.atleast_2d(np.asarray(mask, np.int64))
        cache.append(given, cache.length + tokens.shape[1])
        return values[self._name(output)]


class StageModel(LanguageModel):
    """The layers of one stage, in the process that computes them; a `Stage`.

    Args:
        graph: of the whole model, whose weights of other layers are not read.
    """

    def __init__(self, graph: Graph, plan: StagePlan, **options: Any) -> None:
        self._plan, self._caches = plan, dict[int, Cache]()
        self._received: Arrays = {}
        part = plan.extracted(graph)
        self._whole = graph
        if self.token_input not in {value.name for value in part.inputs}:
            ids = graph.values[self.token_input]
            part.inputs.append(Value(ids.name, ids.dtype, ids.shape))
            part.values[ids.name] = part.inputs[-1]
        super().__init__(part, **options)

    def _named_outputs(self, graph: Graph) -> tuple[str, bool]:
        return super()._named_outputs(self._whole)

    def _has_narrow_weights(self, graph: Graph) -> bool:
        return super()._has_narrow_weights(self._whole)

    def _wanted(self, output: str) -> list[str]:
        """The stage's results in a run: values for later stages, and the model's output."""
        name = self._name(output)
        return [*self._plan.sent, *([name] if name in self._plan.outputs else [])]

    def _token_feeds(self, tokens: np.ndarray, cache: Cache) -> dict[str, np.ndarray]:
        return {**super()._token_feeds(tokens, cache), **self._received}

    def _warm_up_feeds(self, output: str) -> Iterator[dict[str, Any]]:
        return iter(())

    def begin(self, label: int, batch: int) -> None:
        """An empty cache."""
        self._caches[label] = self.start(batch)

    def copy(self, label: int, source: int) -> None:
        """A copy of a cache."""
        self._caches[label] = self.copied(self._caches[source])

    def forget(self, labels: Sequence[int]) -> None:
        """Drop caches."""
        for label in labels:
            self._caches.pop(label, None)

    def compute(self, run: tuple[Any, ...], received: Arrays) -> dict[str, np.ndarray]:
        """As of `Stage.run`."""
        output, tokens, label, mask, positions = run
        cache, self._received = self._caches[label], received
        feeds = self._feeds(output, tokens, cache, mask, positions)
        wanted = self._wanted(output)
        found = self._results(self.session(output), [*wanted, *self._kept.values()], feeds)
        cache.states = dict(zip(self._kept, found[len(wanted) :], strict=True))
        return {
            name: array if isinstance(array, np.ndarray) else array.numpy()
            for name, array in zip(wanted, found, strict=False)
        }
