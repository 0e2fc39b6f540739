"""Language models on several ranks: one process for each, with a part of the model (tensor parallel)."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from multiprocessing.connection import Connection
from typing import Any

from ...models.generation.language_model import ON_CPU, LanguageModel, Placement
from ...models.generation.parallel.tensor_parallel import TensorParallelModel, serve
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import Error, FileAccessError, UsageError
from ...runtime.contract.format import ReadOptions
from ...runtime.devices import on_device
from ...runtime.ir.graph import Graph
from ...runtime.passes.parallel.tensor_parallel import ShardAcrossRanks
from ...runtime.ranks.communicator import Loopback, join
from ..console.child_process import start
from ..open.open_model import open_model
from ..open.shard_set import whole_model
from .attached_files import tokenizer_of
from .bind import bind_model, build_graph
from .memory_map import mapped

GROUP = "tensor parallel"
MOST = 64


@dataclass(frozen=True)
class Opening:
    """How every rank opens the model, as `open_model` takes it."""

    path: str
    options: ReadOptions = field(default_factory=ReadOptions)
    format: str | None = None
    revision: str | None = None
    offline: bool = False

    def graph(self) -> Graph:
        """The graph that was read."""
        path = whole_model(self.path)
        return open_model(path, self.options, format=self.format, revision=self.revision, offline=self.offline)


@dataclass(frozen=True)
class RankTask:
    """The computation of a rank other than 0.

    Attributes:
        identity: what ranks with a card each find each other by; None on the CPU.
        options: of `LanguageModel`.
    """

    opening: Opening
    rank: int
    size: int
    identity: bytes | None
    options: Mapping[str, Any]


Pipes = tuple[list[Connection], list[Connection]]
"""Connections to each rank: of commands, and of sums."""
Launch = Callable[[Sequence[RankTask]], Pipes]


def load_ranked(
    opening: Opening,
    size: int,
    *,
    threads: int | None = None,
    activations: str | None = None,
    placement: Placement = ON_CPU,
    launch: Launch | None = None,
) -> TensorParallelModel:
    """A language model that `size` processes compute together, this one among them.

    Args:
        launch: starts the other ranks; None for processes of this machine.

    On ``cuda`` each rank has a card of its own and sums go through NCCL; where there are fewer cards, ranks share them,
    and on the CPU they share its cores: sums go through pipes then.

    Raises UnsupportedError for a model that cannot be split, and for ``cuda`` without a device.
    """
    if not 2 <= size <= MOST:
        raise UsageError("E-OPTION", None, "--tensor-parallel needs 2 ranks or more", found=size)
    if placement.gpu_layers is not None:
        raise UsageError("E-OPTION", None, "--tensor-parallel and --gpu-layers cannot be combined")
    options = {"threads": threads or max(1, len(os.sched_getaffinity(0)) // size), "activations": activations}
    cards, identity = _cards(placement.device, size)
    placements = [Placement(card, placement.device_memory) for card in cards]
    graph, given = _part(opening, 0, size)
    tasks = [
        RankTask(opening, rank, size, identity, {**options, "placement": placements[rank]}) for rank in range(1, size)
    ]
    commands, sums = (launch or _processes)(tasks)
    for pipe in commands:
        _ready(pipe)
    join(GROUP, _communicator(0, size, sums, identity))
    return TensorParallelModel(graph, commands, **given, **options, placement=placements[0])


def _processes(tasks: Sequence[RankTask]) -> Pipes:
    """Start ranks as processes of this machine."""
    context = multiprocessing.get_context("spawn")
    commands, sums = [], []
    for task in tasks:
        (ours, theirs), (here, there) = context.Pipe(), context.Pipe()
        start(context.Process(target=serve_rank, args=(task, theirs, there), daemon=True))
        theirs.close()
        there.close()
        commands.append(ours)
        sums.append(here)
    return commands, sums


def _cards(device: str, size: int) -> tuple[list[str], bytes | None]:
    """The device of each rank, and what ranks with a card each find each other by."""
    if not on_device(device):
        return [device] * size, None
    from ...runtime.cuda.device.device import cuda_support, device_index
    from ...runtime.cuda.execute.nccl import identity

    device_index(device)
    if device != "cuda":
        raise UsageError(
            "E-OPTION", None, "--tensor-parallel chooses the cards itself", expected="--device cuda", found=device
        )
    count = len(cuda_support().devices) or 1
    return [f"cuda:{rank % count}" for rank in range(size)], identity(size)


def _communicator(rank: int, size: int, sums: list[Connection], identity: bytes | None) -> Any:
    if identity is None:
        return Loopback(rank, sums, size)
    from ...runtime.cuda.execute.nccl import Nccl

    return Nccl(rank, size, identity, rank)


def _part(opening: Opening, rank: int, size: int) -> tuple[Graph, dict[str, Any]]:
    """The graph of one rank, and what else a `LanguageModel` takes."""
    source = opening.graph()
    model = bind_model(source)
    graph = build_graph(model)
    ShardAcrossRanks(rank, size, GROUP).run(graph)
    return mapped(graph), {
        "read": functools.partial(tokenizer_of, source),
        "context": model.config.values.get("context"),
    }


def _ready(pipe: Connection) -> None:
    try:
        answer = pipe.recv()
    except (EOFError, OSError) as error:
        raise FileAccessError(
            "E-RANK-DIED", None, "a rank has ended before it was ready", hint="Its messages are above"
        ) from error
    if isinstance(answer, Exception):
        raise answer


def serve_rank(task: RankTask, commands: Connection, sums: Connection) -> None:
    """Compute as one rank, until rank 0 ends."""
    rank, size = task.rank, task.size
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        try:
            graph, given = _part(task.opening, rank, size)
            commands.send(None)
            join(GROUP, _communicator(rank, size, [sums], task.identity))
            model = LanguageModel(graph, **given, **task.options)
        except Error as error:
            commands.send(error)
            return
        serve(model, commands)
