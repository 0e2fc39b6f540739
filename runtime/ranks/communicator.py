"""Communicator between ranks: all-reduce and all-gather of processes that each compute part of a model.

A graph names its communicator (the attribute ``group`` of AllReduce and AllGather); `join` says which one that is in
this process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ..base.errors import FileAccessError, UsageError
from ..base.process_cache import PROCESS, owned

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

HEAD = 8
"""Bytes before an array: how many bytes it has."""


class Communicator(Protocol):
    """Collective operations of one rank; all ranks call them in the same order.

    Attributes:
        rank: of this process, from 0.
        size: how many there are.
    """

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """The sum of all ranks' arrays, the same bits at each of them."""
        ...

    def all_gather(self, array: np.ndarray) -> np.ndarray:
        """[size, ...]: all ranks' arrays, which have one shape, in the order of the ranks."""
        ...


class Alone:
    """One rank."""

    rank, size = 0, 1

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        return array

    def all_gather(self, array: np.ndarray) -> np.ndarray:
        return array[None]


class Loopback:
    """Ranks on one machine's CPU, connected by pipes: rank 0 puts the arrays together in the order of the ranks and
    sends what it has.

    Args:
        rank: of this process.
        pipes: at rank 0 one to each other rank, in their order; at the others the one to rank 0.
        size: how many ranks there are.
    """

    def __init__(self, rank: int, pipes: Sequence[Connection], size: int) -> None:
        self.rank = rank
        self.size = size
        self._pipes = list(pipes)

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        total = np.array(array, order="C")

        def add() -> None:
            other = np.empty_like(total)
            for pipe in self._pipes:
                _receive(pipe, other)
                np.add(total, other, out=total)

        return self._exchanged(total, total, add)

    def all_gather(self, array: np.ndarray) -> np.ndarray:
        own = np.ascontiguousarray(array)
        found = np.empty((self.size, *own.shape), own.dtype)

        def gather() -> None:
            found[0] = own
            for index, pipe in enumerate(self._pipes, 1):
                _receive(pipe, found[index : index + 1])

        return self._exchanged(own, found, gather)

    def _exchanged(self, own: np.ndarray, whole: np.ndarray, receive: Callable[[], None]) -> np.ndarray:
        """`whole`, which rank 0 makes with `receive` of what the others send."""
        try:
            if self.rank:
                _send(self._pipes[0], own)
                _receive(self._pipes[0], whole)
            else:
                receive()
                for pipe in self._pipes:
                    _send(pipe, whole)
        except (EOFError, OSError) as error:
            raise FileAccessError(
                "E-RANK-DIED", None, f"a rank other than {self.rank} has ended", hint="Its messages are above"
            ) from error
        return whole


def _send(pipe: Connection, array: np.ndarray) -> None:
    pipe.send_bytes(array.nbytes.to_bytes(HEAD, "little"))
    if array.nbytes:
        pipe.send_bytes(array.reshape(-1).view(np.uint8).data)


def _receive(pipe: Connection, array: np.ndarray) -> None:
    told = int.from_bytes(pipe.recv_bytes(HEAD), "little")
    if told != array.nbytes:
        why = "the ranks are not at the same step"
        raise FileAccessError("E-RANK-ORDER", None, why, expected=f"{array.nbytes:,} bytes", found=f"{told:,}")
    if told:
        pipe.recv_bytes_into(array.reshape(-1).view(np.uint8).data)


_GROUPS: dict[str, Communicator] = owned({}, PROCESS)


def join(group: str, communicator: Communicator) -> None:
    """Let AllReduce of this process use a communicator for a group."""
    _GROUPS[group] = communicator


def leave(group: str) -> None:
    """Forget a group's communicator."""
    _GROUPS.pop(group, None)


def communicator(group: str) -> Communicator:
    """The communicator of a group; the group without a name is this process alone. UsageError for one that nobody has
    joined."""
    if not group:
        return Alone()
    if group not in _GROUPS:
        raise UsageError(
            "E-RANK-GROUP", None, f"this process is not a rank of {group!r}", hint="Load the model with tensor_parallel"
        )
    return _GROUPS[group]
