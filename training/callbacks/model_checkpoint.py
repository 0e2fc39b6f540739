"""ModelCheckpoint: checkpoints while a model is trained, and of the best ones."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ...optim.core.saved_value import checked
from ...runtime.base.errors import UsageError
from ..loop.logged import metric
from .callback import Callback
from .early_stopping import MODES
from .weights_file import WeightsFile

if TYPE_CHECKING:
    from ..loop.run import Run

SUFFIX = ".ckpt"
FIELD = re.compile(r"\{([^{}:]+)(:[^{}]*)?\}")


@dataclass(eq=False)
class ModelCheckpoint(Callback):
    """Writes checkpoints: by default one after each epoch, of which the newest is kept.

    With Keras' ``ModelCheckpoint("best.safetensors", save_best_only=True)`` it is a `WeightsFile`.

    Attributes:
        dirpath: folder of the files; None for ``checkpoints`` in the folder of the run.
        filename: name without suffix, in which ``{epoch}``, ``{step}`` and ``{METRIC:.2f}`` stand for values.
        monitor: metric by which the best checkpoints are kept; None keeps the newest.
        verbose: say what is written.
        save_last: write ``last.ckpt`` too, at each occasion.
        save_top_k: number of checkpoints to keep; -1 for all, 0 for none.
        save_weights_only: without what a run needs to go on.
        mode: whether less (min) or more (max) of the metric is better.
        every_n_train_steps: write after each of this many steps of the optimizer, and not after epochs.
        every_n_epochs: write after each of this many epochs.
        save_on_train_epoch_end: write after training instead of after validation; None for the first where there is
            no validation.
    """

    def __new__(cls, *given: Any, **options: Any) -> Any:
        """With Keras' options ``filepath`` or ``save_best_only`` a `WeightsFile`."""
        if cls is ModelCheckpoint and ("filepath" in options or "save_best_only" in options):
            return WeightsFile(*given, **options)
        return super().__new__(cls)

    order: ClassVar[int] = 2
    dirpath: str | os.PathLike[str] | None = None
    filename: str | None = None
    monitor: str | None = None
    verbose: bool = False
    save_last: bool = False
    save_top_k: int = 1
    save_weights_only: bool = False
    mode: str = "min"
    every_n_train_steps: int = 0
    every_n_epochs: int = 1
    save_on_train_epoch_end: bool | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UsageError("E-OPTION", None, f"mode is {self.mode!r}", expected="min or max")
        if self.monitor is None and self.save_top_k not in (-1, 0, 1):
            why = f"save_top_k is {self.save_top_k} and monitor is None"
            raise UsageError("E-OPTION", None, why, hint="Name the metric by which checkpoints are the best")
        self.best_model_path = ""
        self.best_model_score: float | None = None
        self.last_model_path = ""
        self.best_k_models: dict[str, float] = {}
        self._last_step = -1

    @property
    def state_key(self) -> str:
        """Different for callbacks of different occasions and metrics."""
        return f"ModelCheckpoint({self.monitor}, {self.mode}, {self.every_n_train_steps}, {self.every_n_epochs})"

    def state_dict(self) -> dict[str, Any]:
        """Paths and scores of the saved checkpoints."""
        return {
            "best_model_path": self.best_model_path,
            "best_model_score": self.best_model_score,
            "last_model_path": self.last_model_path,
            "best_k_models": self.best_k_models,
            "last_step": self._last_step,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore a state; UsageError for values of another kind."""
        kept = state_dict["best_k_models"]
        own = self.state_dict() | {"best_model_score": None, "best_k_models": dict.fromkeys(map(str, kept), 0.0)}
        given = checked(self.state_key, state_dict, own)
        self.best_model_path, self.last_model_path = given["best_model_path"], given["last_model_path"]
        self.best_model_score = None if given["best_model_score"] is None else float(given["best_model_score"])
        self.best_k_models, self._last_step = given["best_k_models"], given["last_step"]

    def folder(self, trainer: Run) -> Path:
        """The folder that files are written to."""
        return Path(trainer.log_dir) / "checkpoints" if self.dirpath is None else Path(self.dirpath)

    def on_train_batch_end(self, trainer: Run, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Write, if it is time."""
        every = self.every_n_train_steps
        if every > 0 and trainer.global_step % every == 0 and trainer.global_step != self._last_step:
            self._save(trainer)

    def on_train_epoch_end(self, trainer: Run, module: Any) -> None:
        """Write, if it is time."""
        if self._after_training(trainer) and self._is_due(trainer):
            self._save(trainer)

    def on_validation_end(self, trainer: Run, module: Any) -> None:
        """Write, if it is time."""
        between = trainer.training and not trainer.sanity_checking
        if between and not self._after_training(trainer) and self._is_due(trainer):
            self._save(trainer)

    def _is_due(self, trainer: Run) -> bool:
        if self.every_n_train_steps > 0 or self.every_n_epochs < 1 or trainer.global_step == self._last_step:
            return False
        return (trainer.current_epoch + 1) % self.every_n_epochs == 0

    def _after_training(self, trainer: Run) -> bool:
        asked = self.save_on_train_epoch_end
        return not trainer.has_validation if asked is None else asked

    def _save(self, trainer: Run) -> None:
        self._last_step = trainer.global_step
        if self.save_top_k != 0:
            self._save_best(trainer)
        if self.save_last:
            self.last_model_path = str(self.folder(trainer) / f"last{SUFFIX}")
            trainer.save_checkpoint(self.last_model_path, self.save_weights_only)

    def _save_best(self, trainer: Run) -> None:
        sign = 1 if self.mode == "min" else -1
        score = float(trainer.global_step)
        if self.monitor is not None:
            score = metric(trainer.callback_metrics, self.monitor, "ModelCheckpoint")
            kept = self.best_k_models
            worst = max(kept, key=lambda path: _rank(sign * kept[path]), default=None)
            full = 0 < self.save_top_k <= len(kept)
            if full and worst is not None and _rank(sign * score) >= _rank(sign * kept[worst]):
                return
        dropped = self._surplus(sign)
        path = self._path(trainer, dropped)
        self.best_k_models[path] = score
        best = self.best_k_models
        if self.monitor is None:
            self.best_model_path = path
        else:
            self.best_model_path = min(best, key=lambda each: _rank(sign * best[each]))
            self.best_model_score = best[self.best_model_path]
        trainer.save_checkpoint(path, self.save_weights_only)
        if self.verbose:
            print(f"wrote {path}", file=sys.stderr)
        folder = self.folder(trainer).resolve()
        for each in map(Path, dropped):
            is_own = each.suffix == SUFFIX and each.resolve().parent == folder  # a checkpoint may name other files
            if is_own and str(each) != path:
                each.unlink(missing_ok=True)

    def _surplus(self, sign: int) -> list[str]:
        """The files that another one replaces, which are forgotten."""
        kept = self.best_k_models
        if self.save_top_k < 0:
            return []
        sign = -1 if self.monitor is None else sign
        order = sorted(kept, key=lambda path: _rank(sign * kept[path]))
        dropped = order[self.save_top_k - 1 :]
        for each in dropped:
            del kept[each]
        return dropped

    def _path(self, trainer: Run, replaced: list[str]) -> str:
        name = formatted(self.filename or "{epoch}-{step}", trainer)
        folder = self.folder(trainer)
        path, version = folder / f"{name}{SUFFIX}", 0
        while path.exists() and str(path) not in replaced:
            version += 1
            path = folder / f"{name}-v{version}{SUFFIX}"
        return str(path)


def formatted(name: str, trainer: Run) -> str:
    """A name with ``NAME=VALUE`` in place of each ``{NAME}``, as Lightning writes them."""
    values = {**trainer.callback_metrics, "epoch": trainer.current_epoch, "step": trainer.global_step}

    def value(match: re.Match[str]) -> str:
        shown = format(values.get(match[1], 0), (match[2] or ":")[1:])
        return f"{match[1]}={shown}".replace("/", "_")

    return FIELD.sub(value, name)


def _rank(score: float) -> float:
    return math.inf if math.isnan(score) else score
