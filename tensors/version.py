"""`cc.version`: what scripts ask of libraries for GPUs, of which there is none."""

from __future__ import annotations

cuda: str | None = None
hip: str | None = None
