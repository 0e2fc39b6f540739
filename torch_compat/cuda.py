"""The part of `torch.cuda` that scripts query before they choose a device; tensors are on the CPU, so no device is
available."""

from __future__ import annotations

from ..tensors.operations.random import manual_seed as manual_seed
from ..tensors.operations.random import manual_seed as manual_seed_all
from . import amp as amp

__all__ = [
    "amp", "current_device", "device_count", "empty_cache", "is_available", "manual_seed", "manual_seed_all",
    "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved", "reset_peak_memory_stats",
    "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """Whether tensors can be on a CUDA device: False. Models run there by `InferenceSession` and the commands."""
    return False


def device_count() -> int:
    """CUDA devices that tensors can be on."""
    return 0


def synchronize(device: object = None) -> None:
    """Wait for work of a device; there is none."""


def empty_cache() -> None:
    """Give unused memory of devices back; there is none."""


def current_device() -> int:
    """The number of the device in use.

    Raises RuntimeError, as PyTorch without a GPU.
    """
    raise RuntimeError("tensors are on the CPU: there is no CUDA device")


def max_memory_allocated(device: object = None) -> int:
    """Bytes of tensors on a device."""
    return 0


memory_allocated = memory_reserved = max_memory_reserved = max_memory_allocated


def reset_peak_memory_stats(device: object = None) -> None:
    """Forget how much memory of a device was used; there is none."""


def __dir__() -> list[str]:
    return list(__all__)
