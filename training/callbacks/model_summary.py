"""ModelSummary: the parts of a module before training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..report.tables import print_parts
from .callback import Callback

if TYPE_CHECKING:
    from ..loop.run import Run


class ModelSummary(Callback):
    """Prints the modules that a module consists of, with the numbers of their parameters, on standard error.

    Args:
        max_depth: of modules in modules; -1 for all, 0 for none.
        options: Lightning's choices of the look, without effect.
    """

    def __init__(self, max_depth: int = 1, **options: Any) -> None:
        self.max_depth = max_depth

    def on_fit_start(self, trainer: Run, module: Any) -> None:
        """Print."""
        if self.max_depth:
            print_parts(module, self.max_depth)


RichModelSummary = ModelSummary
"""Lightning's other name."""
