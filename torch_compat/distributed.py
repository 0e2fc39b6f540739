"""`cc.distributed`: what scripts ask before they train in several processes; training runs in one."""

from __future__ import annotations

__all__ = ["is_available", "is_initialized"]


def is_available() -> bool:
    """Whether several processes can train together: False."""
    return False


def is_initialized() -> bool:
    """Whether a group of processes was started: False."""
    return False


def __dir__() -> list[str]:
    return list(__all__)
