"""`utils.dlpack`: tensors of other libraries in the same memory, by the DLPack protocol."""

from __future__ import annotations

from typing import Any

from ...tensors.core.registry import FUNCTIONS
from ...tensors.core.tensor import Tensor

__all__ = ["from_dlpack", "to_dlpack"]


def from_dlpack(ext_tensor: Any) -> Tensor:
    """The tensor of an object with ``__dlpack__``, or of a capsule."""
    given = ext_tensor if hasattr(ext_tensor, "__dlpack__") else _Capsule(ext_tensor)
    found: Tensor = FUNCTIONS["from_dlpack"](given)
    return found


class _Capsule:
    """A capsule on the CPU as an object with DLPack's methods."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def to_dlpack(tensor: Tensor) -> Any:
    """The capsule of a tensor."""
    return tensor.__dlpack__()


def __dir__() -> list[str]:
    return list(__all__)
