"""Properties of a trainer that Lightning's scripts read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..callbacks import EarlyStopping, ModelCheckpoint, ProgressBar
from .engine import Engine
from .fit_loop import DEFAULT_EPOCHS
from .lightning_module import LightningModule

OF_SETTINGS = (
    "max_steps", "min_epochs", "min_steps", "fast_dev_run", "limit_train_batches", "limit_val_batches",
    "limit_test_batches", "limit_predict_batches", "overfit_batches", "val_check_interval", "check_val_every_n_epoch",
    "num_sanity_val_steps", "log_every_n_steps", "gradient_clip_val", "gradient_clip_algorithm", "precision",
)  # fmt: skip
"""Settings that are properties."""
ONE_PROCESS = {
    "global_rank": 0, "local_rank": 0, "node_rank": 0, "world_size": 1, "num_devices": 1, "num_nodes": 1,
    "is_global_zero": True,
}  # fmt: skip
"""What Lightning says of one process on one device."""


class Properties(Engine):
    """What a trainer tells of itself: its settings by name too, and the ranks of one process.

    Attributes:
        train_dataloader, val_dataloaders: the loaders of the last `fit`.
    """

    train_dataloader: Any = None
    val_dataloaders: Any = None

    @property
    def accumulate_grad_batches(self) -> int:
        """Batches whose gradients one step of the optimizer is made of."""
        return self.settings.accumulate_grad_batches

    @accumulate_grad_batches.setter
    def accumulate_grad_batches(self, batches: int) -> None:
        self.settings.accumulate_grad_batches = batches

    @property
    def max_epochs(self) -> int:
        """Epochs of `fit`, -1 without end."""
        given = self.settings.max_epochs
        unlimited = -1 if self.settings.max_steps >= 0 else DEFAULT_EPOCHS
        return unlimited if given is None else given

    @property
    def num_training_batches(self) -> float:
        """Batches of an epoch; infinite if that is not known."""
        return math.inf if self.batches is None else self.batches

    @property
    def estimated_stepping_batches(self) -> float:
        """Steps that the optimizer makes in `fit`; infinite if that is not known. `configure_optimizers` may ask."""
        most = self.settings.max_steps if self.settings.max_steps >= 0 else math.inf
        if self.batches is None or self.max_epochs < 0:
            return most
        return min(math.ceil(self.batches / self.accumulate_grad_batches) * self.max_epochs, most)

    @property
    def checkpoint_callback(self) -> ModelCheckpoint | None:
        """The first callback that writes checkpoints."""
        return _first(self.checkpoint_callbacks)

    @property
    def checkpoint_callbacks(self) -> list[ModelCheckpoint]:
        """The callbacks that write checkpoints."""
        return [each for each in self.callbacks if isinstance(each, ModelCheckpoint)]

    @property
    def early_stopping_callback(self) -> EarlyStopping | None:
        """The first callback that stops training by a metric."""
        return _first(self.early_stopping_callbacks)

    @property
    def early_stopping_callbacks(self) -> list[EarlyStopping]:
        """The callbacks that stop training by a metric."""
        return [each for each in self.callbacks if isinstance(each, EarlyStopping)]

    @property
    def progress_bar_callback(self) -> ProgressBar | None:
        """The callback that shows progress."""
        return _first([each for each in self.callbacks if isinstance(each, ProgressBar)])

    @property
    def lr_scheduler_configs(self) -> list[Any]:
        """The schedules, with `scheduler`, `interval`, `frequency`, `monitor` and `name`."""
        return self.schedules

    @property
    def default_root_dir(self) -> str:
        """The folder of logs and checkpoints."""
        return self.root

    @property
    def lightning_module(self) -> LightningModule:
        """The module of the last call."""
        return self.module

    model = lightning_module

    @property
    def validating(self) -> bool:
        """Whether `validate` runs."""
        return self.state == "validation"

    @property
    def testing(self) -> bool:
        """Whether `test` runs."""
        return self.state == "test"

    @property
    def predicting(self) -> bool:
        """Whether `predict` runs."""
        return self.state == "predict"

    @property
    def interrupted(self) -> bool:
        """Whether the last call ended by an error or an interrupt."""
        return self.state == "interrupted"

    def print(self, *items: Any, **options: Any) -> None:
        """Print, as the built-in function does."""
        print(*items, **options)


def _first(found: Sequence[Any]) -> Any:
    return found[0] if found else None


def _of_settings(name: str) -> property:
    return property(lambda self: getattr(self.settings, name), doc=f"The setting {name}.")


for _name in OF_SETTINGS:
    setattr(Properties, _name, _of_settings(_name))
for _name, _value in ONE_PROCESS.items():
    setattr(Properties, _name, _value)
