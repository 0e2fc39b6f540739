"""`cc.backends`: what scripts ask of and set for devices that tensors are not on."""

from __future__ import annotations

from typing import Any

__all__ = ["cudnn", "mps"]


class _Absent:
    """A backend that tensors do not use; settings are kept and have no effect."""

    benchmark = False
    deterministic = False
    enabled = False
    allow_tf32 = False

    def is_available(self) -> bool:
        """False."""
        return False

    def is_built(self) -> bool:
        """False."""
        return False


cudnn: Any = _Absent()
mps: Any = _Absent()
