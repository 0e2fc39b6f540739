"""`cc.accelerator`: what scripts ask before they choose a device; tensors are on the CPU, so there is none."""

from __future__ import annotations

__all__ = ["current_accelerator", "device_count", "is_available", "synchronize"]


def is_available() -> bool:
    """Whether tensors can be on an accelerator: False."""
    return False


def current_accelerator(check_available: bool = False) -> None:
    """The device of the accelerator: none."""


def device_count() -> int:
    """Accelerators that tensors can be on."""
    return 0


def synchronize(device: object = None) -> None:
    """Wait for work of a device; there is none."""


def __dir__() -> list[str]:
    return list(__all__)
