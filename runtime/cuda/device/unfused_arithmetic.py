"""Additions, products and quotients that the compiler does not contract to fused multiply-add."""

# mypy: disable-error-code="misc, no-redef"
from __future__ import annotations

from typing import Any

from .device import SIMULATED

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

    add64, mul64 = add, mul

else:
    from numba.cuda.libdevice import dadd_rn as add64
    from numba.cuda.libdevice import dmul_rn as mul64
    from numba.cuda.libdevice import fadd_rn as add
    from numba.cuda.libdevice import fdiv_rn as div
    from numba.cuda.libdevice import fmul_rn as mul

__all__ = ["add", "add64", "div", "mul", "mul64"]
