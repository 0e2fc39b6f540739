"""Backend protocol: what a session requires of the device it runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from .execute.run_options import RunOptions
from .ir.graph import Graph


class Backend(Protocol):
    """Makes programs of graphs, and runs them.

    Attributes:
        name: the backend's name in pass pipelines, such as "cpu".
        on_device: whether results can stay in device memory.
        reruns_directly: whether a program accepts checked dtypes and shapes without converting the arrays again.
    """

    name: str
    on_device: bool
    reruns_directly: bool

    def program(self, graph: Graph) -> Any:
        """A program that runs a graph."""

    def accept(self, arrays: list[Any]) -> list[Any]:
        """The arrays moved to where the program needs them."""

    def run(self, program: Any, arrays: list[Any], options: RunOptions) -> list[Any]:
        """Outputs on the host."""

    def run_on_device(self, program: Any, arrays: list[Any], move: bool) -> list[Any]:
        """Outputs on the device; with `move` also those the CPU computes. UsageError on the CPU."""

    def repeated(self, program: Any, arrays: list[Any], options: RunOptions, output: int) -> Callable[[], Any] | None:
        """A function that computes one output from the current contents of the arrays; None if `run` is as fast."""

    def expect(self, program: Any, others: Callable[[Sequence[Any]], Iterable[Sequence[Any]]], imminent: int) -> None:
        """Set what may be fed later, a function of the arrays of the first run, and how many of these follow it at
        once."""

    def prepare(self, program: Any, arrays: list[Any], options: RunOptions) -> None:
        """Plan a run, and compile the kernels of this and expected runs where the backend can do so ahead."""
