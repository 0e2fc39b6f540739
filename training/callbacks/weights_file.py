"""WeightsFile: Keras' ModelCheckpoint, which writes weights to a file, of all epochs or of the best so far."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ...runtime.base.errors import UsageError
from ..checkpoint.nested_file import save_nested
from ..loop.logged import metric
from .callback import Callback

if TYPE_CHECKING:
    from ..loop.run import Run

MODES = ("auto", "min", "max")
LARGER_IS_BETTER = ("acc", "auc", "f1", "precision", "recall")
"""Parts of the names of metrics of which more is better, for the mode auto."""


@dataclass(eq=False)
class WeightsFile(Callback):
    """Writes parameters and buffers after each epoch, which `load_weights` reads: safetensors under any name.

    Attributes:
        filepath: the file; ``{epoch:02d}`` and ``{val_loss:.2f}`` stand for values, and epochs are counted from 1.
        monitor: name of the metric.
        verbose: say what is written.
        save_best_only: write where the metric is better than ever.
        save_weights_only: Keras' choice; weights alone are written either way.
        mode: whether less (min) or more (max) is better; auto by the name of the metric.
        save_freq: "epoch".

    Raises UsageError for other modes and frequencies.
    """

    order: ClassVar[int] = 2
    filepath: str | os.PathLike[str]
    monitor: str = "val_loss"
    verbose: int = 0
    save_best_only: bool = False
    save_weights_only: bool = False
    mode: str = "auto"
    save_freq: str = "epoch"

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UsageError("E-OPTION", None, f"mode is {self.mode!r}", expected="auto, min or max")
        if self.save_freq != "epoch":
            raise UsageError("E-OPTION", None, f"save_freq is {self.save_freq!r}", expected="epoch")
        larger = any(part in self.monitor for part in LARGER_IS_BETTER)
        self._sign = -1 if self.mode == "max" or (self.mode == "auto" and larger) else 1
        self.best = self._sign * math.inf

    def on_train_epoch_end(self, trainer: Run, module: Any) -> None:
        """Write, if no validation runs."""
        if not trainer.has_validation:
            self._write(trainer, module)

    def on_validation_end(self, trainer: Run, module: Any) -> None:
        """Write, if this is the validation of an epoch of training."""
        if trainer.training and not trainer.sanity_checking:
            self._write(trainer, module)

    def _write(self, trainer: Run, module: Any) -> None:
        if self.save_best_only:
            current = metric(trainer.callback_metrics, self.monitor, "ModelCheckpoint")
            if not self._sign * current < self._sign * self.best:
                return
            self.best = current
        values = {**trainer.callback_metrics, "epoch": trainer.current_epoch + 1}
        path = os.fspath(self.filepath).format(**values)
        self._save(module, path)
        if self.verbose:
            print(f"weights of epoch {trainer.current_epoch + 1} are written to {path}", file=sys.stderr)

    def _save(self, module: Any, path: str) -> None:
        save_nested(getattr(module, "model", module).state_dict(), path)
