"""Trainer: trains, validates and tests modules, and predicts with them. The interface is that of Lightning's class."""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path
from typing import Any

from ...optim import AdamW
from ...optim.core.saved_value import checked, count
from ...runtime.base.errors import UsageError
from ...runtime.base.system_error import read_error
from ..callbacks import ModelCheckpoint, ModelSummary, ProgressBar, Timer
from ..checkpoint import run_state
from ..checkpoint.nested_file import load_nested, save_nested
from ..data.loader import in_order
from ..loggers import TensorBoardLogger
from ..loop.ranks import RankLoader, Ranks
from ..loop.schedule import configured
from ..report.tables import print_metrics
from .data_module import LightningDataModule, as_list, loaders_of
from .evaluation_loop import PREDICTION, TEST, VALIDATION, EvaluationLoop, Stage
from .fit_loop import FitLoop
from .hyper_parameters import storable
from .lightning_module import LightningModule, defines
from .properties import Properties
from .settings import Settings

LEARNING_RATE = 5e-5
"""Of AdamW where a module does not configure an optimizer: what fine-tuning usually takes."""


class Trainer(Properties):
    """Runs modules over data.

        cc.Trainer(max_epochs=3, accumulate_grad_batches=4).fit(module, train_loader, val_loader)

    Args:
        settings: the attributes of `Settings`, by name; those of Lightning that have no effect here are taken.

    Raises UsageError for settings that make no sense, UnsupportedError for devices and precisions that there are not.
    """

    __signature__ = inspect.signature(Settings)

    def __init__(self, **settings: Any) -> None:
        super().__init__(Settings.of(settings))
        self._fit_loop: FitLoop | None = None
        tries = self.settings.fast_dev_run
        if tries:
            self._only_try(int(tries))
        if self.settings.overfit_batches:
            self.settings.limit_train_batches = self.settings.limit_val_batches = self.settings.overfit_batches
        if self.settings.logger is True and not tries:
            self.loggers = [TensorBoardLogger(self.root)]
        elif not tries:
            self.loggers = self.settings.listed("logger")
        if self.settings.enable_progress_bar and not self._has(ProgressBar):
            self.callbacks.append(ProgressBar())
        if self.settings.max_time is not None:
            self.callbacks.append(Timer(self.settings.max_time))
        if self.settings.enable_model_summary and not tries and not self._has(ModelSummary):
            self.callbacks.append(ModelSummary())
        writes = self.settings.enable_checkpointing and not tries
        if writes and not self._has(ModelCheckpoint):
            self.callbacks.append(ModelCheckpoint())

    def _has(self, kind: type) -> bool:
        return any(isinstance(callback, kind) for callback in self.callbacks)

    def _only_try(self, batches: int) -> None:
        settings = self.settings
        settings.max_epochs, settings.max_steps, settings.num_sanity_val_steps = 1, batches, 0
        settings.limit_train_batches = settings.limit_val_batches = batches
        settings.limit_test_batches = settings.limit_predict_batches = batches
        self.callbacks = [callback for callback in self.callbacks if not isinstance(callback, ModelCheckpoint)]

    def fit(
        self,
        model: LightningModule,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        datamodule: LightningDataModule | None = None,
        ckpt_path: str | os.PathLike[str] | None = None,
    ) -> None:
        """Train a module.

        Args:
            train_dataloaders: batches: a loader of this package, of torch, or anything that can be iterated.
            val_dataloaders: one such loader or a list of them; None for no validation.
            datamodule: makes the loaders, in place of them.
            ckpt_path: checkpoint from which to go on, or "last" for the newest of the folder of a `ModelCheckpoint`.

        Raises UsageError without batches or for modules without a training step, FormatError for checkpoints that are
        damaged or of another module.
        """
        given = train_dataloaders
        if isinstance(given, LightningDataModule):
            given, datamodule = None, given
        self._connect()
        self._attach(model, "fit", datamodule)
        if not defines(model, "training_step"):
            raise UsageError("E-TRAIN-MODULE", None, f"{type(model).__name__} does not define training_step()")
        train = loaders_of("train_dataloader", given, datamodule, model)
        if train is None:
            raise UsageError("E-TRAIN-DATA", None, "there is no data to train with", hint="Pass a loader of batches")
        val = loaders_of("val_dataloader", val_dataloaders, datamodule, model)
        settings, val_loaders = self.settings, as_list(val) if defines(model, "validation_step") else []
        if settings.overfit_batches:
            train, val_loaders = in_order(train), [in_order(val_loader) for val_loader in val_loaders]
        self.epochs = None if self.max_epochs < 0 else self.max_epochs
        if self.dtype is not None:
            model.to(self.dtype)
        if self.ranks is not None:
            train = RankLoader(train, self.ranks)
            self.ranks.agree(model, train)
        self.batches = self.limit(train, settings.limit_train_batches)
        self.train_dataloader, self.val_dataloaders = train, val
        self.optimizers, self.schedules = self._configured(model)
        self.should_stop, self.training, self.state = False, True, "fitting"
        self._fit_loop = FitLoop(self, train, val_loaders)
        path = self._checkpoint(ckpt_path)
        if path is not None:
            self._resume(path)
        self._log_settings(model)
        with self._running("fit"):
            self.call("on_fit_start")
            self._fit_loop.run()
            self.call("on_fit_end")

    def validate(
        self,
        model: LightningModule | None = None,
        dataloaders: Any = None,
        ckpt_path: str | os.PathLike[str] | None = None,
        verbose: bool = True,
        datamodule: LightningDataModule | None = None,
    ) -> list[dict[str, float]]:
        """Run `validation_step` over each loader and return the means of logged values by name.

        Args:
            model: None for that of the last call.
            dataloaders: a loader or a list of them.
            ckpt_path: checkpoint whose weights are taken; "best" and "last" are those of the last `fit`.
            verbose: print them as a table.
        """
        return self._evaluated(VALIDATION, "val_dataloader", (model, dataloaders, ckpt_path, datamodule), verbose)[0]

    def test(
        self,
        model: LightningModule | None = None,
        dataloaders: Any = None,
        ckpt_path: str | os.PathLike[str] | None = None,
        verbose: bool = True,
        datamodule: LightningDataModule | None = None,
    ) -> list[dict[str, float]]:
        """Run `test_step` over each loader; arguments are those of `validate`."""
        return self._evaluated(TEST, "test_dataloader", (model, dataloaders, ckpt_path, datamodule), verbose)[0]

    def predict(
        self,
        model: LightningModule | None = None,
        dataloaders: Any = None,
        datamodule: LightningDataModule | None = None,
        ckpt_path: str | os.PathLike[str] | None = None,
    ) -> list[Any]:
        """The results of `predict_step`, one for each batch; of several loaders a list for each."""
        given = (model, dataloaders, ckpt_path, datamodule)
        found = self._evaluated(PREDICTION, "predict_dataloader", given, False)[1]
        return found[0] if len(found) == 1 else found

    def save_checkpoint(self, filepath: str | os.PathLike[str], weights_only: bool = False) -> None:
        """Write what `fit` needs to go on from here; with `weights_only` parameters and hyper-parameters alone."""
        if not self.is_global_zero:
            return
        model = self.module
        checkpoint: dict[str, Any] = {
            "version": run_state.VERSION,
            "epoch": self.current_epoch,
            "global_step": self.global_step,
            "hyper_parameters": storable(model.hparams),
            "state_dict": model.state_dict(),
        }
        if not weights_only and self._fit_loop is not None:
            checkpoint |= {
                **run_state.optimizer_states(self.optimizers, self.schedules),
                "callbacks": {key: each.state_dict() for key, each in run_state.stateful(self.callbacks).items()},
                "metrics": dict(self.callback_metrics),
                "should_stop": self.should_stop,
                "loop": self._fit_loop.state(),
            }
        for callback in self.callbacks:
            if hasattr(callback, "on_save_checkpoint"):
                callback.on_save_checkpoint(self, model, checkpoint)
        model.on_save_checkpoint(checkpoint)
        save_nested(checkpoint, filepath)

    def renew_statistics(self) -> None:
        """Recompute the running statistics of batch norms from the batches of the last `fit`."""
        if self._fit_loop is not None:
            self._fit_loop.renew_statistics()

    def _attach(self, model: LightningModule | None, stage: str, datamodule: Any) -> LightningModule:
        if model is not None:
            self.module = model
            self._attached = True
        if not self._attached:
            raise UsageError("E-TRAIN-MODULE", None, f"{stage} is called without a module", hint="Pass it")
        if not isinstance(self.module, LightningModule):
            why = f"{type(self.module).__name__} is not a LightningModule"
            raise UsageError("E-TRAIN-MODULE", None, why, hint="Derive it from cc.LightningModule")
        self.module.trainer, self.datamodule = self, datamodule
        self.callback_metrics, self.progress_bar_metrics = {}, {}
        for owner in (datamodule, self.module):
            if hasattr(owner, "prepare_data"):
                owner.prepare_data()
        if datamodule is not None:
            datamodule.setup(stage)
        self.call("setup", stage)
        return self.module

    _attached = False

    def _connect(self) -> None:
        """Start the other ranks, or connect to rank 0; ranks besides 0 show and write nothing."""
        if self.ranks is None and self.world_size > 1:
            self.ranks = Ranks(self.world_size)
        if not self.is_global_zero:
            shown = (ProgressBar, ModelSummary, ModelCheckpoint)
            self.callbacks = [callback for callback in self.callbacks if not isinstance(callback, shown)]
            self.loggers = []

    def _configured(self, model: LightningModule) -> Any:
        if defines(model, "configure_optimizers"):
            return configured(model.configure_optimizers())
        what = f"{type(model).__name__} does not define configure_optimizers()"
        print(f"{what}: AdamW with a learning rate of {LEARNING_RATE} is used", file=sys.stderr)
        return [AdamW([each for each in model.parameters() if each.requires_grad], lr=LEARNING_RATE)], []

    def _log_settings(self, model: LightningModule) -> None:
        if model.hparams and model.__dict__.get("_log_hparams", True):
            for logger in self.loggers:
                logger.log_hyperparams(model.hparams)

    def _checkpoint(self, path: str | os.PathLike[str] | None) -> Path | None:
        """The file that a path or a word names."""
        callback = self.checkpoint_callback
        if path == "best":
            if callback is None or not callback.best_model_path:
                raise UsageError("E-TRAIN-CHECKPOINT", None, "no checkpoint was written yet", hint="Call fit()")
            return Path(callback.best_model_path)
        if path == "last":
            found = sorted(callback.folder(self).glob("*.ckpt"), key=_age) if callback is not None else []
            return found[-1] if found else None
        return None if path is None else Path(path)

    def _resume(self, path: Path) -> None:
        checkpoint = load_nested(path)
        assert self._fit_loop is not None
        with run_state.taken_from(str(path)):
            run_state.check(checkpoint, str(path), len(self.optimizers), len(self.schedules))
        self.call("on_load_checkpoint", checkpoint)
        with run_state.taken_from(str(path)):
            epoch, step = count("epoch", checkpoint["epoch"]), count("global_step", checkpoint["global_step"])
            metrics = {str(name): float(value) for name, value in checkpoint["metrics"].items()}
            run_state.load_optimizer_states(checkpoint, self.optimizers, self.schedules)
            loop = self._fit_loop.checked(checkpoint["loop"])
            should_stop = checked("should_stop", checkpoint["should_stop"], False)
            before = {name: each.array() for name, each in self.module.state_dict().items()}
            self.module.load_state_dict(run_state.weights(checkpoint, str(path)))
            try:
                run_state.load_callbacks(checkpoint["callbacks"], self.callbacks)
            except BaseException:
                self.module.load_state_dict(before)
                raise
        self.current_epoch, self.global_step, self.callback_metrics = epoch, step, metrics
        self.should_stop = should_stop
        self._fit_loop.resume(loop)

    def _evaluated(self, stage: Stage, name: str, given: tuple[Any, ...], verbose: bool) -> Any:
        model, dataloaders, ckpt_path, datamodule = given
        if isinstance(dataloaders, LightningDataModule):
            dataloaders, datamodule = None, dataloaders
        word = {"validation": "validate"}.get(stage.name, stage.name)
        module = self._attach(model, word, datamodule)
        if stage is not PREDICTION and not defines(module, stage.step):
            raise UsageError("E-TRAIN-MODULE", None, f"{type(module).__name__} does not define {stage.step}()")
        loaders = loaders_of(name, dataloaders, datamodule, module)
        if loaders is None:
            raise UsageError("E-TRAIN-DATA", None, f"{word} is called without data", hint="Pass a loader of batches")
        setattr(self, f"{name}s", loaders)
        path = self._checkpoint(ckpt_path)
        if path is not None:
            module.load_state_dict(run_state.weights(load_nested(path), str(path)))
        if self.dtype is not None:
            module.to(self.dtype)
        self.training, self.state = False, stage.name
        with self._running(word):
            found = EvaluationLoop(self, stage, as_list(loaders)).run()
        if verbose:
            print_metrics(found[0], stage.name)
        return found

    def _running(self, stage: str) -> _Running:
        return _Running(self, stage)


class _Running:
    """A block in which a trainer works: at its end loggers write, and errors are reported to callbacks."""

    def __init__(self, trainer: Trainer, stage: str) -> None:
        self._trainer = trainer
        self._stage = stage

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        trainer = self._trainer
        trainer.training = False
        trainer.state = "finished" if error is None else "interrupted"
        if error is not None:
            trainer.call("on_exception", error)
        trainer.call("teardown", self._stage)
        for logger in trainer.loggers:
            logger.finalize("success" if error is None else "failed")


def _age(path: Path) -> tuple[float, str]:
    try:
        return path.stat().st_mtime, path.name
    except OSError as error:
        raise read_error(path, error, "E-IO-OPEN") from error
