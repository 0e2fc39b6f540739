"""Properties of a trainer that Lightning's scripts read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...tensors.core.device import CPU, Device
from ..callbacks import EarlyStopping, ModelCheckpoint, ProgressBar
from ..loop.ranks import rank, world_size
from .data_module import LightningDataModule, as_list
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
    "node_rank": 0, "num_nodes": 1,
}  # fmt: skip
"""Lightning's values for one process on one device."""


class SingleDeviceStrategy:
    """The attributes of Lightning's single-process CPU strategy that scripts read."""

    root_device: Device = CPU
    global_rank = local_rank = node_rank = 0
    world_size = 1
    is_global_zero = True

    def barrier(self, name: str | None = None) -> None:
        """Wait for all processes, of which this is the only one."""

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """The object of process `src`: the object itself."""
        return obj

    def reduce(self, tensor: Any, group: Any = None, reduce_op: str | None = "mean") -> Any:
        """The mean or sum over all processes: the tensor."""
        return tensor

    def all_gather(self, tensor: Any, group: Any = None, sync_grads: bool = False) -> Any:
        """The tensors of all processes: this one, with a first dim of 1 as in Lightning."""
        return tensor.unsqueeze(0)


class Properties(Engine):
    """Properties of a trainer: its settings by name, and the ranks of one process.

    Attributes:
        train_dataloader, val_dataloaders, test_dataloaders, predict_dataloaders: the loaders of the last call.
        datamodule: the data module of the last call; None without one.
        strategy: of one process.
    """

    train_dataloader: Any = None
    val_dataloaders: Any = None
    test_dataloaders: Any = None
    predict_dataloaders: Any = None
    datamodule: LightningDataModule | None = None
    strategy = SingleDeviceStrategy()

    @property
    def world_size(self) -> int:
        """Processes that train together."""
        return world_size(self.settings.device_count)

    num_devices = world_size

    @property
    def global_rank(self) -> int:
        """The number of this process among them."""
        return rank() if self.world_size > 1 else 0

    local_rank = global_rank

    @property
    def is_global_zero(self) -> bool:
        """Whether this process is the one that shows and writes."""
        return self.global_rank == 0

    @property
    def num_val_batches(self) -> list[float]:
        """Batches of each loader of validation; infinite where that is not known."""
        return self._counted(self.val_dataloaders, self.settings.limit_val_batches)

    @property
    def num_sanity_val_batches(self) -> list[float]:
        """Batches of each loader that are tried before training."""
        tried = self.settings.num_sanity_val_steps
        return [count if tried < 0 else min(tried, count) for count in self.num_val_batches]

    @property
    def num_test_batches(self) -> list[float]:
        """Batches of each loader of the test; infinite where that is not known."""
        return self._counted(self.test_dataloaders, self.settings.limit_test_batches)

    @property
    def num_predict_batches(self) -> list[float]:
        """Batches of each loader of predictions; infinite where that is not known."""
        return self._counted(self.predict_dataloaders, self.settings.limit_predict_batches)

    def _counted(self, loaders: Any, limit: Any) -> list[float]:
        counts = [self.limit(loader, limit) for loader in as_list(loaders)]
        return [math.inf if count is None else count for count in counts]

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
        return [callback for callback in self.callbacks if isinstance(callback, ModelCheckpoint)]

    @property
    def early_stopping_callback(self) -> EarlyStopping | None:
        """The first callback that stops training by a metric."""
        return _first(self.early_stopping_callbacks)

    @property
    def early_stopping_callbacks(self) -> list[EarlyStopping]:
        """The callbacks that stop training by a metric."""
        return [callback for callback in self.callbacks if isinstance(callback, EarlyStopping)]

    @property
    def progress_bar_callback(self) -> ProgressBar | None:
        """The callback that shows progress."""
        return _first([callback for callback in self.callbacks if isinstance(callback, ProgressBar)])

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
