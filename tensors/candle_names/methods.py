"""Methods by candle's names: `to_device`, `to_dtype`, and operators that broadcast, which here all do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.registry import FUNCTIONS, method
from ..core.tensor import Tensor
from ..operations.shape import to

BROADCAST = (
    "add", "sub", "mul", "div", "pow", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "matmul",
)  # fmt: skip
"""Operators after ``broadcast_``."""


@method()
def to_device(self: Tensor, device: Any) -> Tensor:
    """The tensor on a device: the same tensor for the CPU, UsageError for others."""
    return to(self, device=device)


@method()
def to_dtype(self: Tensor, dtype: Any) -> Tensor:
    """The elements in a dtype."""
    return to(self, dtype=dtype)


def _broadcasting(compute: Callable[..., Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    def broadcast(self: Tensor, rhs: Tensor) -> Tensor:
        """The operator of the name's end, with operands of different shapes."""
        return compute(self, rhs)

    return broadcast


for _name in BROADCAST:
    method(f"broadcast_{_name}")(_broadcasting(FUNCTIONS[_name]))
