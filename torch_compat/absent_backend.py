"""Settings of a backend that tensors do not use, as ``cc.backends.cudnn.benchmark = True``: they are kept and have no
effect."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

__all__ = [
    "allow_tf32", "benchmark", "deterministic", "enable_cudnn_sdp", "enable_flash_sdp", "enable_math_sdp",
    "enable_mem_efficient_sdp", "enabled", "is_available", "is_built", "matmul", "version",
]  # fmt: skip

benchmark = False
deterministic = False
enabled = False
allow_tf32 = False
matmul: Any = SimpleNamespace(allow_tf32=False, allow_fp16_reduced_precision_reduction=False)
"""Settings of products of matrices."""


def is_available() -> bool:
    """Whether tensors can use the backend: False."""
    return False


def is_built() -> bool:
    """Whether the backend is part of the package: False."""
    return False


def version() -> None:
    """The version of the backend: none."""


def enable_flash_sdp(enabled: bool) -> None:
    """Choose a kernel of attention for GPUs."""


enable_mem_efficient_sdp = enable_math_sdp = enable_cudnn_sdp = enable_flash_sdp


def __dir__() -> list[str]:
    return list(__all__)
