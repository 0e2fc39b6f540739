"""`cc.version`: what scripts ask of libraries for GPUs, of which there is none."""

from __future__ import annotations

__all__ = ["cuda", "hip"]

cuda: str | None = None
hip: str | None = None


def __dir__() -> list[str]:
    return list(__all__)
