"""Single arithmetic operations on float32 that the compiler does not join into others."""

# mypy: disable-error-code="misc, no-redef"
from __future__ import annotations

from typing import Any

from .machine import SIMULATED

if SIMULATED:

    def add(one: Any, other: Any) -> Any:
        """The rounded sum."""
        return one + other

    def mul(one: Any, other: Any) -> Any:
        """The rounded product."""
        return one * other

    def div(one: Any, other: Any) -> Any:
        """The rounded quotient."""
        return one / other

else:
    from numba.cuda.libdevice import fadd_rn as add
    from numba.cuda.libdevice import fdiv_rn as div
    from numba.cuda.libdevice import fmul_rn as mul

__all__ = ["add", "div", "mul"]
