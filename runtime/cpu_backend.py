"""CPU backend of sessions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from .base.errors import UsageError
from .execute.program import Program
from .execute.run_options import RunOptions
from .ir.graph import Graph
from .region.region import region_of


class CpuBackend:
    """Runs graphs on the CPU; see `Backend`."""

    name = "cpu"
    on_device = False
    reruns_directly = True

    def __init__(self, packed: dict[Any, Any], inplace_inputs: Collection[str]) -> None:
        self.packed = packed
        self.inplace_inputs = inplace_inputs

    def program(self, graph: Graph) -> Program:
        return Program(region_of(graph, self.packed, self.inplace_inputs), specialized=True)

    def accept(self, arrays: list[Any]) -> list[Any]:
        return [array.numpy() if getattr(array, "on_device", False) else array for array in arrays]

    def run(self, program: Program, arrays: list[Any], options: RunOptions) -> list[Any]:
        return program.run(arrays, options)

    def run_on_device(self, program: Program, arrays: list[Any], move: bool) -> list[Any]:
        raise UsageError(
            "E-DEVICE-NAME", None, "this session runs on the CPU", expected="Session(graph, device='cuda')"
        )

    def repeated(
        self, program: Program, arrays: list[Any], options: RunOptions, output: int
    ) -> Callable[[], Any] | None:
        from .execute.replay import repeated

        return repeated(program, arrays, options, output)

    def expect(
        self, program: Program, others: Callable[[Sequence[Any]], Iterable[Sequence[Any]]], imminent: int
    ) -> None:
        program.warmup.expected_feeds, program.warmup.imminent = others, imminent

    def prepare(self, program: Program, arrays: list[Any], options: RunOptions) -> None:
        program.prepare(arrays, options)
        program.prepare_others(arrays, options)
