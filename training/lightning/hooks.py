"""Hooks: methods that a trainer calls around each part of its work. Modules and callbacks have the same names."""

from __future__ import annotations

from typing import Any


class ModuleHooks:
    """Hooks of a module, which do nothing unless a subclass defines them."""

    def prepare_data(self) -> None:
        """Before `setup`: for downloads and the like."""

    def setup(self, stage: str) -> None:
        """Before anything else; `stage` is fit, validate, test or predict."""

    def teardown(self, stage: str) -> None:
        """After everything else."""

    def on_fit_start(self) -> None:
        """Called when `Trainer.fit` begins."""

    def on_fit_end(self) -> None:
        """Called when `Trainer.fit` ends."""

    def on_train_start(self) -> None:
        """Before the first epoch."""

    def on_train_end(self) -> None:
        """After the last epoch."""

    def on_train_epoch_start(self) -> None:
        """Before each epoch."""

    def on_train_epoch_end(self) -> None:
        """After each epoch and its validation."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        """Before each training step; -1 skips the rest of the epoch."""
        return None

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """After each training step."""

    def on_before_zero_grad(self, optimizer: Any) -> None:
        """Before gradients are dropped."""

    def on_before_backward(self, loss: Any) -> None:
        """Before gradients of the loss are computed."""

    def on_after_backward(self) -> None:
        """Called after the gradients of the loss are computed."""

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        """Before the optimizer changes the parameters."""

    def on_validation_start(self) -> None:
        """Before validation."""

    def on_validation_end(self) -> None:
        """After validation."""

    def on_validation_epoch_start(self) -> None:
        """Before the batches of validation."""

    def on_validation_epoch_end(self) -> None:
        """After the batches of validation."""

    def on_validation_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Before each validation step."""

    def on_validation_batch_end(self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """After each validation step."""

    def on_test_start(self) -> None:
        """Before the test."""

    def on_test_end(self) -> None:
        """After the test."""

    def on_test_epoch_start(self) -> None:
        """Before the batches of the test."""

    def on_test_epoch_end(self) -> None:
        """After the batches of the test."""

    def on_test_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Before each test step."""

    def on_test_batch_end(self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """After each test step."""

    def on_predict_start(self) -> None:
        """Before predictions."""

    def on_predict_end(self) -> None:
        """After predictions."""

    def on_predict_epoch_start(self) -> None:
        """Before the batches of predictions."""

    def on_predict_epoch_end(self) -> None:
        """After the batches of predictions."""

    def on_predict_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Before each prediction."""

    def on_predict_batch_end(self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """After each prediction."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Before a checkpoint is written: add to it what `on_load_checkpoint` needs."""

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Called when a checkpoint is read."""
