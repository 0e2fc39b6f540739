"""A language model that several ranks compute together: this process is rank 0 and tells the others what to run."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.errors import Error, FileAccessError
from ...runtime.graph import Graph
from .cache import Cache
from .model import LanguageModel

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

START, COPY, RUN = "start", "copy", "run"
PATIENCE = 5.0
"""Seconds for which an error of another rank is waited for when this one has failed."""


class RankedModel(LanguageModel):
    """Used like the model of one rank. The others keep a cache for each of this one's.

    Args:
        others: pipes to the processes that `serve`, in the order of their ranks.
    """

    def __init__(self, graph: Graph, others: Sequence[Connection], **options: Any) -> None:
        self._others = list(others)
        self._labels: weakref.WeakKeyDictionary[Cache, int] = weakref.WeakKeyDictionary()
        self._count = 0
        self._gone: list[int] = []
        super().__init__(graph, **options)

    def start(self, batch: int) -> Cache:
        made = super().start(batch)
        self._tell(START, self._labelled(made), batch)
        return made

    def copied(self, cache: Cache) -> Cache:
        made = super().copied(cache)
        self._tell(COPY, self._labelled(made), self._labels[cache])
        return made

    def rewind(self, cache: Cache, length: int) -> bool:
        """Only to where a cache is: the other ranks keep theirs."""
        return length == cache.length

    def _labelled(self, cache: Cache) -> int:
        self._count += 1
        self._labels[cache] = self._count
        weakref.finalize(cache, self._gone.append, self._count)
        return self._count

    def _tell(self, what: str, *rest: Any) -> None:
        gone = [self._gone.pop() for _ in range(len(self._gone))]
        for pipe in self._others:
            try:
                pipe.send((what, gone, rest))
            except OSError as error:
                raise FileAccessError("E-RANK-DIED", None, "another rank has ended", hint="Its messages are above") from error

    def _run(self, output: str, tokens: np.ndarray, cache: Cache, mask: ArrayLike | None, positions: ArrayLike | None) -> Any:
        self._tell(RUN, output, tokens, self._labels[cache], mask, positions)
        try:
            return self._together(output, tokens, cache, mask, positions)
        except BaseException:
            for pipe in self._others:  # the ranks are at different steps from here on, and would wait for each other, or add up what is not of one
                pipe.close()
            raise

    def _together(self, output: str, tokens: np.ndarray, cache: Cache, mask: ArrayLike | None, positions: ArrayLike | None) -> Any:
        """A run that the others have been told of."""
        try:
            found = super()._run(output, tokens, cache, mask, positions)
        except Error as error:
            raise self._theirs() or error from error
        for pipe in self._others:
            answer = _answer(pipe)
            if answer is not None:
                raise answer
        return found

    def _theirs(self) -> Exception | None:
        """What another rank ended with."""
        for pipe in self._others:
            if pipe.poll(PATIENCE):
                answer = _answer(pipe)
                if answer is not None:
                    return answer
        return None


def _answer(pipe: Connection) -> Exception | None:
    try:
        answer: Exception | None = pipe.recv()
    except (EOFError, OSError):
        return FileAccessError("E-RANK-DIED", None, "another rank has ended", hint="Its messages are above")
    return answer


def serve(model: LanguageModel, pipe: Connection) -> None:
    """Run what rank 0 says until it hangs up; an error is sent there and ends this."""
    caches: dict[int, Cache] = {}
    actions: dict[str, Callable[..., None]] = {
        START: lambda label, batch: caches.__setitem__(label, model.start(batch)),
        COPY: lambda label, source: caches.__setitem__(label, model.copied(caches[source])),
        RUN: lambda output, tokens, label, mask, positions: model.run_states(output, tokens, caches[label], mask, positions),
    }
    while True:
        try:
            what, gone, rest = pipe.recv()
        except (EOFError, OSError):
            return
        for label in gone:
            caches.pop(label, None)
        try:
            actions[what](*rest)
        except Error as error:
            with contextlib.suppress(OSError):
                pipe.send(error)
            return
        if what == RUN:
            pipe.send(None)
