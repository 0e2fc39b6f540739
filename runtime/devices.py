"""Device names and the backend of each: `cpu`, `cuda`, `cuda:1`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backend import Backend
    from .session_options import SessionOptions

CPU = "cpu"


def on_device(name: str) -> bool:
    """Whether a name such as ``cpu`` or ``cuda:1`` stands for a device with memory of its own."""
    return name != CPU


def backend_of(options: SessionOptions, packed: dict[Any, Any]) -> Backend:
    """The backend of a session's device; `packed` holds the weights packed for CPU kernels."""
    if on_device(options.device):
        from .cuda.backend import CudaBackend

        return CudaBackend(
            options.device,
            options.device_memory,
            options.gpu_layers,
            options.thread_count,
            packed,
            options.inplace_inputs,
        )
    from .cpu_backend import CpuBackend

    return CpuBackend(packed, options.inplace_inputs)
