"""The CUDA backend of sessions: pass pipeline, plans and runs on a device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from ..execute.run_options import RunOptions
from ..ir.function import nodes_below
from ..ir.graph import Graph, Node
from ..region.region import Region
from .device.device import device_index
from .execute.layer_offload import OffloadedProgram, offload_layers
from .execute.program import Program
from .execute.timing import timed
from .memory.host_weight import weights_of
from .memory.pool import PoolShare, pool_of
from .plan.kernel_api import load_kernels


class CudaBackend:
    """Runs graphs on a CUDA device; see `Backend`.

    Args:
        device: ``cuda`` or ``cuda:1``.
        memory: the most bytes that all sessions may hold there together.
        layers: how many layers run there, ``auto`` for those that fit, all where None; the others run on the CPU with
            so many `threads`.
        packed: what is made of weights for the CPU.
        inplace_inputs: names of inputs whose arrays a run may overwrite.
    """

    name = "cuda"
    on_device = True
    reruns_directly = False

    def __init__(
        self,
        device: str,
        memory: int | None = None,
        layers: int | str | None = None,
        threads: int = 1,
        packed: dict[Any, Any] | None = None,
        inplace_inputs: Collection[str] = (),
    ) -> None:
        self.device = device
        self.memory = memory
        self.layers = layers
        self.threads = threads
        self.packed = {} if packed is None else packed
        self.inplace_inputs = inplace_inputs

    def program(self, graph: Graph) -> Program | OffloadedProgram:
        pool = PoolShare(pool_of(device_index(self.device)), self.memory)
        load_kernels()
        if self.layers is not None:
            found = offload_layers(graph, self.layers, pool, self.threads, self.packed, self.inplace_inputs)
            if found is not None:
                return found
        return Program(
            Region(
                graph.nodes,
                graph.inputs,
                graph.outputs,
                weights_of(graph),
                {},
                inplace_inputs=frozenset(self.inplace_inputs),
            ),
            pool,
        )

    def accept(self, arrays: list[Any]) -> list[Any]:
        return arrays

    def run(self, program: Program | OffloadedProgram, arrays: list[Any], options: RunOptions) -> list[Any]:
        keep = (
            None
            if options.taps is None
            else frozenset(name for name in _names(program.nodes) if name and options.taps.search(name))
        )
        with timed(options.clock):
            return program.run(arrays, keep=keep, on_tap=options.on_tap)

    def run_on_device(self, program: Program | OffloadedProgram, arrays: list[Any], move: bool) -> list[Any]:
        return program.run(arrays, on_device=True, move=move)

    def repeated(self, program: Any, arrays: list[Any], options: RunOptions, output: int) -> Callable[[], Any] | None:
        return None

    def expect(self, program: Any, others: Callable[[Sequence[Any]], Iterable[Sequence[Any]]], imminent: int) -> None:
        """Nothing is compiled ahead for a device."""

    def prepare(self, program: Any, arrays: list[Any], options: RunOptions) -> None:
        """Nothing is compiled ahead for a device."""


def _names(nodes: Sequence[Node]) -> Iterator[str]:
    """Names of the outputs of nodes and their subgraphs' nodes."""
    for node in nodes:
        yield from (value.name for value in node.outputs)
        yield from (value.name for graph in node.subgraphs for inner in nodes_below(graph) for value in inner.outputs)
