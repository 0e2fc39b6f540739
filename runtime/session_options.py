"""Session options: device, threads, optimization and memory settings of a session."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol, TypedDict

from .base.dataclass import dataclass
from .base.errors import UsageError


class HoldsPackedWeights(Protocol):
    """A session."""

    @property
    def packed(self) -> dict[Any, Any]:
        """Packed weights by layout."""


@dataclass(frozen=True)
class SessionOptions:
    """The options of `Session`.

    Attributes:
        threads: threads of one run, None for all cores.
        native: whether to compile kernels; None compiles except for small graphs, where NumPy is fast enough.
        simplify: whether to optimize a copy of the graph; None optimizes except for small graphs.
        activations: precision of activations in products with weights: ``f32`` unchanged; ``q8`` quantized to 8 bits in
            blocks of 32 with a scale each, as llama.cpp does for quantized weights; many rows times f16 or bf16 weights
            are rounded about as finely as these.
        device: ``cpu``, ``cuda`` or ``cuda:1``; operators without a CUDA path run on the host.
        inplace_inputs: inputs a run may overwrite (KV caches); an output that updates rows of such an input is the same
            array.
        fed_defaults: inputs with defaults that every run feeds. Other defaults are constants; a run that feeds one
            prepares the graph once more.
        shares_weights_with: a session of the same graph whose packed weights are reused.
        device_memory: byte limit of all sessions on the device together, None for its free memory.
        gpu_layers: number of layers on the device, ``auto`` for as many as fit with their state, None for all.

    Raises UsageError for fewer than one thread or unknown `activations`.
    """

    threads: int | None = None
    native: bool | None = None
    simplify: bool | None = None
    activations: str = "f32"
    device: str = "cpu"
    inplace_inputs: Collection[str] = ()
    fed_defaults: Collection[str] = ()
    shares_weights_with: HoldsPackedWeights | None = None
    device_memory: int | None = None
    gpu_layers: int | str | None = None

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise UsageError("E-RUN-THREADS", None, "a run needs at least one thread", found=self.threads)
        if self.activations not in ("f32", "q8"):
            raise UsageError(
                "E-RUN-ACTIVATIONS", None, f"{self.activations!r} is not a valid activation type", expected="f32 or q8"
            )

    @property
    def thread_count(self) -> int:
        """Threads of one run."""
        from .plan.kernel_api import cores

        return self.threads or cores()


class SessionKeywords(TypedDict, total=False):
    """Keywords of `Session` for type checkers: the fields of `SessionOptions` except `threads`."""

    native: bool | None
    simplify: bool | None
    activations: str
    device: str
    inplace_inputs: Collection[str]
    fed_defaults: Collection[str]
    shares_weights_with: HoldsPackedWeights | None
    device_memory: int | None
    gpu_layers: int | str | None
