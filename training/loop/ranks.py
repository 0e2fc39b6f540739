"""Ranks: processes that train one module together, each on some of the batches (distributed data parallel).

Rank 0 starts the other ranks on this machine as Lightning does: the script runs once more in each. Where the variables
RANK and WORLD_SIZE are set, ranks are there already, on several machines too: rank 0 listens at MASTER_ADDR and
MASTER_PORT, and all of them have the secret CANDLE_RANK_KEY.
"""

from __future__ import annotations

import atexit
import copy
import dataclasses
import itertools
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...nn.core.module import Module
from ...runtime.base.errors import FileAccessError, UsageError
from ...runtime.ranks import rank_variables
from ...runtime.ranks.communicator import Loopback
from ...runtime.ranks.rank_connections import accepted, connected, listener
from ...runtime.ranks.rank_variables import HOST, KEY, PORT, RANK, SIZE
from ...tensors.core.expression import leaf
from ...tensors.core.tensor import Tensor
from ...tensors.operations.random import GENERATOR, Generator
from ..data.loader import DataLoader
from .logged import Logged

SELF = "127.0.0.1"
REDUCE: dict[str, Callable[[np.ndarray], Any]] = {"sum": np.sum, "min": np.min, "max": np.max}


def world_size(devices: int) -> int:
    """Number of ranks, or `devices` if this process starts them."""
    return rank_variables.world_size(devices) if rank_variables.is_rank() else devices


def rank() -> int:
    """The rank of this process, 0 for a process of its own."""
    return rank_variables.rank()


class Ranks:
    """The ranks of a run, which are connected.

    Args:
        size: ranks in all, at least 2.
    """

    def __init__(self, size: int) -> None:
        self.size, self.rank = size, rank_variables.rank(size)
        started: list[subprocess.Popen[bytes]] = []
        if self.rank:
            where = os.environ.get(HOST, SELF), rank_variables.port()
            pipes = [connected(*where, rank_variables.key(), self.rank)]
        else:
            pipes = self._accepted(started)
        atexit.register(_ended, started)
        self._communicator = Loopback(self.rank, pipes, size)

    def _accepted(self, started: list[subprocess.Popen[bytes]]) -> list[Any]:
        own = not rank_variables.is_rank()
        key = secrets.token_bytes(32) if own else rank_variables.key()
        where = (SELF, 0) if own else (os.environ.get(HOST, SELF), rank_variables.port())
        with listener(*where) as server:
            if own:
                known = {SIZE: self.size, HOST: SELF, PORT: server.getsockname()[1], KEY: key.hex()}
                for number in range(1, self.size):
                    variables = {name: str(value) for name, value in {**known, RANK: number}.items()}
                    started.append(subprocess.Popen(_command(), env={**os.environ, **variables}))

            def check() -> None:
                for number, process in enumerate(started, 1):
                    if process.poll() is not None:
                        why = f"rank {number} has ended before it trained"
                        raise FileAccessError("E-RANK-DIED", None, why, hint="Its messages are above")

            return accepted(server, key, self.size, check)

    def gathered(self, values: Sequence[float]) -> np.ndarray:
        """The numbers of all ranks, f64 [ranks, numbers]."""
        return self._communicator.all_gather(np.array(values, np.float64))

    def agree(self, module: Module, loader: Any) -> None:
        """Take parameters, buffers and the states of random numbers from rank 0."""
        own = {name: np.ascontiguousarray(each.array()) for name, each in module.state_dict().items()}
        module.load_state_dict({name: self._of_first(array) for name, array in own.items()})
        for generator in (GENERATOR, getattr(loader, "generator", None)):
            if isinstance(generator, Generator):
                _set_state(generator, self._of_first(_state(generator)))

    def _of_first(self, array: np.ndarray) -> np.ndarray:
        """The array of rank 0."""
        given = array if not self.rank else np.zeros_like(array)
        words = given.reshape(-1).view(np.uint8)
        return self._communicator.all_reduce(words).view(array.dtype).reshape(array.shape)

    def average(self, parameters: Sequence[Tensor], weights: np.ndarray) -> None:
        """Make gradients the means over ranks, each with its weight; one that no rank has stays None."""
        share = weights[self.rank] / weights.sum()
        known = np.atleast_1d(self.gathered([each.grad is not None for each in parameters]).any(axis=0))
        present = [each for each, is_known in zip(parameters, known, strict=True) if is_known]
        for dtype in dict.fromkeys(each.dtype for each in present):
            some = [each for each in present if each.dtype == dtype]
            arrays = [np.zeros(each.shape, each.detach().numpy().dtype) if each.grad is None else each.grad.numpy()
                      for each in some]  # fmt: skip
            joined = np.concatenate([(array * array.dtype.type(share)).reshape(-1) for array in arrays])
            total = self._communicator.all_reduce(joined)
            ends = np.cumsum([array.size for array in arrays])
            for each, array, part in zip(some, arrays, np.split(total, ends[:-1]), strict=True):
                each.grad = Tensor(leaf(part.reshape(array.shape).astype(array.dtype, copy=False)))

    def logged(self, found: Logged, weights: np.ndarray) -> Logged:
        """The logged values over all ranks, each with its weight."""
        values = self.gathered([float(value) for _, value in found])
        some, total = weights > 0, int(weights.sum())
        joined: Logged = []
        for (entry, _), column in zip(found, values.T, strict=True):
            reduce = REDUCE.get(entry.reduce_fx)
            value = np.average(column, weights=weights) if reduce is None else reduce(column[some])
            entry = dataclasses.replace(entry, rows=total) if entry.rows else entry
            joined.append((entry, float(value)))
        return joined


def _command() -> list[str]:
    """Command that runs this process's script again."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    script = ["-m", spec.name] if spec is not None else [os.path.abspath(sys.argv[0])]
    if spec is None and not os.path.isfile(script[0]):
        why = "several devices need a script, which runs once for each of them"
        raise UsageError("E-TRAIN-DEVICE", None, why, hint="Put the code into a file, or use devices=1")
    return [sys.executable, *script, *sys.argv[1:]]


def _ended(started: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait for ranks, and end those that go on."""
    for process in started:
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()


def _state(generator: Generator) -> np.ndarray:
    (_, words, position, has_normal, cached), following = generator.get_state()
    last = np.nan if following is None else following
    return np.array([*words, position, has_normal, cached, last], np.float64)


def _set_state(generator: Generator, state: np.ndarray) -> None:
    words, (position, has_normal, cached, last) = state[:-4].astype(np.uint32), state[-4:]
    following = None if np.isnan(last) else float(last)
    generator.set_state((("MT19937", words, int(position), int(has_normal), float(cached)), following))


class RankLoader:
    """The batches of one rank: of each `size` batches of a loader the one of its number. Where the last of them are
    fewer, the other ranks get the first one again, which has no weight.

    Attributes:
        counts: whether the last batch has a weight.
    """

    def __init__(self, loader: Any, ranks: Ranks) -> None:
        self.loader, self._rank, self._size = loader, ranks.rank, ranks.size
        self.counts = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def __len__(self) -> int:
        return -(-len(self.loader) // self._size)

    def __iter__(self) -> Iterator[Any]:
        return self.after(0)

    def after(self, count: int) -> Iterator[Any]:
        """An iteration without its first batches."""
        if (
            isinstance(self.loader, DataLoader)
            and self.loader.batch_sampler is not None
            and not self.loader.num_workers
        ):
            own = copy.copy(self.loader)
            own.batch_sampler = _Chosen(self.loader.batch_sampler, self)
            return own.after(count)
        return itertools.islice((batch for batch, self.counts in self.chosen(self.loader)), count, None)

    def chosen(self, items: Iterable[Any]) -> Iterator[tuple[Any, bool]]:
        """The items of this rank, and whether they count."""
        pending = iter(items)
        while group := list(itertools.islice(pending, self._size)):
            counts = self._rank < len(group)
            yield group[self._rank if counts else 0], counts


class _Chosen:
    """A sampler of the batches of one rank."""

    def __init__(self, sampler: Iterable[Any], loader: RankLoader) -> None:
        self._sampler, self._loader = sampler, loader

    def __iter__(self) -> Iterator[Any]:
        for group, counts in self._loader.chosen(self._sampler):
            self._loader.counts = counts
            yield group
