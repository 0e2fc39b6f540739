"""Tensor-parallel language models: this process is rank 0 and sends commands to the other ranks."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np

from ....runtime.base.errors import Error, FileAccessError
from ....runtime.ir.graph import Graph
from ..kv_cache import Cache
from ..language_model import LanguageModel

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

START, COPY, RUN = "start", "copy", "run"
ERROR_TIMEOUT = 5.0
"""Seconds to wait for another rank's error after this one has failed."""


class TensorParallelModel(LanguageModel):
    """A language model over several ranks, used like one of a single rank. The other ranks mirror its caches.

    Args:
        others: pipes to the processes that `serve`, in order of rank.
    """

    def __init__(self, graph: Graph, others: Sequence[Connection], **options: Any) -> None:
        self._others = list(others)
        self._labels: weakref.WeakKeyDictionary[Cache, int] = weakref.WeakKeyDictionary()
        self._count = 0
        self._gone: list[int] = []
        super().__init__(graph, **options)

    def start(self, batch: int) -> Cache:
        made = super().start(batch)
        self._send(START, self._label(made), batch)
        return made

    def copied(self, cache: Cache) -> Cache:
        made = super().copied(cache)
        self._send(COPY, self._label(made), self._labels[cache])
        return made

    def rewind(self, cache: Cache, length: int) -> bool:
        """Only to the cache's current length: the other ranks do not truncate theirs."""
        return length == cache.length

    @property
    def can_rewind(self) -> bool:
        """As of `rewind`."""
        return False

    @property
    def can_batch(self) -> bool:
        """The other ranks mirror caches of one row each."""
        return False

    def _label(self, cache: Cache) -> int:
        self._count += 1
        self._labels[cache] = self._count
        weakref.finalize(cache, self._gone.append, self._count)
        return self._count

    def _send(self, what: str, *rest: Any) -> None:
        gone = [self._gone.pop() for _ in range(len(self._gone))]
        for pipe in self._others:
            try:
                pipe.send((what, gone, rest))
            except OSError as error:
                raise FileAccessError(
                    "E-RANK-DIED", None, "another rank has ended", hint="Its messages are above"
                ) from error

    def _run(
        self, output: str, tokens: np.ndarray, cache: Cache, mask: ArrayLike | None, positions: ArrayLike | None
    ) -> Any:
        self._send(RUN, output, tokens, self._labels[cache], mask, positions)
        try:
            return self._run_all(output, tokens, cache, mask, positions)
        except BaseException:
            # the ranks are out of step from here on: they would wait for each other, or sum values of different steps
            for pipe in self._others:
                pipe.close()
            raise

    def _run_all(
        self, output: str, tokens: np.ndarray, cache: Cache, mask: ArrayLike | None, positions: ArrayLike | None
    ) -> Any:
        """A run that the other ranks have been commanded to do."""
        try:
            found = super()._run(output, tokens, cache, mask, positions)
        except Error as error:
            raise self._peer_error() or error from error
        for pipe in self._others:
            answer = _answer(pipe)
            if answer is not None:
                raise answer
        return found

    def _peer_error(self) -> Exception | None:
        """The error of another rank, if any."""
        for pipe in self._others:
            if pipe.poll(ERROR_TIMEOUT):
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
    """Execute rank 0's commands until it hangs up; an error is sent back and ends the loop."""
    caches: dict[int, Cache] = {}
    actions: dict[str, Callable[..., None]] = {
        START: lambda label, batch: caches.__setitem__(label, model.start(batch)),
        COPY: lambda label, source: caches.__setitem__(label, model.copied(caches[source])),
        RUN: lambda output, tokens, label, mask, positions: model.run_states(
            output, tokens, caches[label], mask, positions
        ),
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
