"""Protocol of kernel source under construction: header lines and parameters, for quantized element types."""

from __future__ import annotations

from typing import Protocol

from ...plan.kernel_api import Argument

PACKAGE = __package__.rpartition(".")[0]
"""The package that generated kernels import device functions from."""


class KernelText(Protocol):
    """Kernel source that element types add to; see `operand.Writer`.

    Attributes:
        head: lines before the function.
        names: of the parameters.
    """

    head: list[str]
    names: list[str]

    def parameter(self, name: str, value: Argument) -> str:
        """Add a parameter; return its name."""
