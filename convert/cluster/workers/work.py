"""Work that a cluster can do: how a worker prepares for it, and what it does with one piece."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from .share import Share, opened_bytes


class Work(ABC):
    """A description of work as plain data, which workers get by the name of its class.

    Subclasses are frozen dataclasses.
    """

    exclusive = False
    """Whether a worker does one piece at a time with all its threads, instead of one piece a thread."""
    resumes = False
    """Whether ``--resume`` continues an interrupted run."""
    run_key = ""
    """Name of the preparation that runs of a work share; empty if each run has its own."""

    @abstractmethod
    def prepare(self, threads: int) -> Any:
        """The state that all pieces share: an opened model, a plan. Called once in every worker process.

        Args:
            threads: that the worker has.
        """

    @abstractmethod
    def run(self, prepared: Any, piece: Any) -> Any:
        """The result of one piece, both as plain data. May be called again with the same piece, after or while another
        worker does it, and has to leave the same bytes."""

    def describe(self, piece: Any) -> str:
        """The name of a piece in messages."""
        return f"piece {piece!r}"

    def share(self, pieces: Iterable[Any]) -> Share:
        """What the workers get: these pieces, and the weights of all models that the work opens."""
        return Share(sum(1 for _ in pieces), opened_bytes(self), held=self.exclusive)
