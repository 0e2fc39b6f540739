"""Settings of a trainer, by Lightning's names."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...runtime.base.errors import UnsupportedError, UsageError
from ...runtime.base.nearest_name import did_you_mean

DTYPES = {
    "32": None, "32-true": None, "64": "f64", "64-true": "f64", "16-true": "f16", "bf16-true": "bf16",
}  # fmt: skip
"""Dtype of the parameters, by precision."""
MIXED = {"bf16": "bf16", "bf16-mixed": "bf16"}
"""Dtype of matrix products with f32 parameters, by precision."""
NOT_HERE = ("16", "16-mixed", "transformer-engine", "transformer-engine-float16")
HERE = ("auto", "cpu")
STRATEGIES = ("auto", "ddp")
WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "num_nodes": (1,), "deterministic": (None, True, False, "warn"),
    "benchmark": (None, True, False), "inference_mode": (True, False), "sync_batchnorm": (True, False),
    "use_distributed_sampler": (True, False), "profiler": (None,), "plugins": (None,), "barebones": (False,),
    "reload_dataloaders_every_n_epochs": (0,),
    "model_registry": (None,), "enable_autolog_hparams": (True, False),
}  # fmt: skip
"""Further settings of Lightning with the values that are taken, because they ask for what is done anyway."""


@dataclass(eq=False)
class Settings:
    """Settings of a trainer.

    Attributes:
        accelerator: auto or cpu.
        devices: processes that train together, each on its share of the batches; auto for one. See `loop.ranks`.
        precision: 32-true, 64-true, 16-true or bf16-true. Of 16-bit parameters the optimizer keeps f32 values, from
            which they are rounded after each step. With bf16-mixed or bf16 parameters are f32, and steps compute
            products in bf16; see `autocast`.
        logger: a logger, a list of loggers, True for TensorBoard's event files, False for none.
        callbacks: callbacks.
        fast_dev_run: True or a number of batches that are tried, without logs and checkpoints.
        max_epochs: epochs of `fit`; None for 1000, or without end where `max_steps` is given. -1: without end.
        min_epochs: before which nothing stops training.
        max_steps: steps of the optimizer; -1: without end.
        min_steps: before which nothing stops training.
        max_time: after which training ends, as `callbacks.Timer` takes it; None without a limit.
        limit_train_batches, limit_val_batches, limit_test_batches, limit_predict_batches: batches of a loader, as a
            number (int) or a share (float).
        overfit_batches: batches of training and of validation, as such a number, the same in each epoch; 0 for no such
            limit.
        val_check_interval: batches after which there is a validation, as a number (int) or a share of the epoch
            (float).
        check_val_every_n_epoch: epochs with validation; None counts the batches of `val_check_interval` over epochs.
        num_sanity_val_steps: batches of validation that are tried before training.
        log_every_n_steps: steps whose values loggers are given.
        accumulate_grad_batches: batches whose gradients one step of the optimizer is made of.
        gradient_clip_val: norm, or absolute value, beyond which gradients are cut; None for no limit.
        gradient_clip_algorithm: norm or value.
        enable_checkpointing: write a checkpoint after each epoch where there is no `ModelCheckpoint`.
        enable_progress_bar: show progress.
        enable_model_summary: show the parts of the model before training.
        detect_anomaly: end training with an error at the first loss that is not finite; a warning is printed otherwise.
        default_root_dir: folder of logs and checkpoints; None for the current one.
        jit: whether steps become plans where they can.
        strategy: auto or ddp, which average the gradients of all processes, weighted by rows.
    """

    accelerator: str = "auto"
    devices: Any = "auto"
    precision: str | int = "32-true"
    logger: Any = True
    callbacks: Any = None
    fast_dev_run: bool | int = False
    max_epochs: int | None = None
    min_epochs: int | None = None
    max_steps: int = -1
    min_steps: int | None = None
    max_time: Any = None
    limit_train_batches: int | float = 1.0
    limit_val_batches: int | float = 1.0
    limit_test_batches: int | float = 1.0
    limit_predict_batches: int | float = 1.0
    overfit_batches: int | float = 0.0
    val_check_interval: int | float = 1.0
    check_val_every_n_epoch: int | None = 1
    num_sanity_val_steps: int = 2
    log_every_n_steps: int = 50
    accumulate_grad_batches: int = 1
    gradient_clip_val: float | None = None
    gradient_clip_algorithm: str = "norm"
    enable_checkpointing: bool = True
    enable_progress_bar: bool = True
    enable_model_summary: bool = True
    detect_anomaly: bool = False
    default_root_dir: str | os.PathLike[str] | None = None
    jit: bool = True
    strategy: str = "auto"

    @property
    def device_count(self) -> int:
        """Processes that train; UnsupportedError for what names none."""
        given = self.devices
        if isinstance(given, str) and given.isdecimal():
            given = int(given)
        if isinstance(given, list | tuple) and given and all(isinstance(each, int) for each in given):
            given = len(given)
        if given == "auto":
            return 1
        if not isinstance(given, int) or isinstance(given, bool) or given < 1:
            why = f"devices is {self.devices!r}"
            raise UnsupportedError("E-TRAIN-DEVICE", None, why, expected="a number of processes, or auto")
        return given

    def checked(self) -> None:
        """UsageError for values that make no sense, UnsupportedError for devices and precisions that there are not."""
        if str(self.accelerator) not in HERE:
            why = f"models are trained on the CPU, not on {self.accelerator!r}"
            raise UnsupportedError("E-TRAIN-DEVICE", None, why, hint='Use accelerator="cpu"')
        _ = self.device_count
        if self.strategy not in STRATEGIES:
            why = f"the strategy {self.strategy!r} is not one that models are trained by"
            raise UnsupportedError("E-OPTION", None, why, expected=" or ".join(STRATEGIES))
        if str(self.precision) not in (*DTYPES, *MIXED):
            kind = UnsupportedError if str(self.precision) in NOT_HERE else UsageError
            why = f"the precision {self.precision!r} is not one that models are trained in"
            expected = ", ".join((*DTYPES, *MIXED))
            raise kind("E-TRAIN-PRECISION", None, why, expected=expected, hint="Use bf16-mixed or 32-true")
        if self.gradient_clip_algorithm not in ("norm", "value"):
            why = f"gradient_clip_algorithm is {self.gradient_clip_algorithm!r}"
            raise UsageError("E-OPTION", None, why, expected="norm or value")
        for name in ("max_epochs", "max_steps", "min_epochs", "min_steps"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < -1):
                raise UsageError("E-OPTION", None, f"{name} is {value!r}", expected="a number, or -1 for no limit")
        over_epochs = self.check_val_every_n_epoch is None
        if over_epochs and isinstance(self.val_check_interval, float):
            why = f"check_val_every_n_epoch is None and val_check_interval is {self.val_check_interval!r}"
            raise UsageError("E-OPTION", None, why, hint="Give a number of batches (int) as val_check_interval")
        counts = ("accumulate_grad_batches", "log_every_n_steps", "check_val_every_n_epoch")
        for name in counts[: 2 if over_epochs else 3]:
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise UsageError("E-OPTION", None, f"{name} is {getattr(self, name)!r}", expected="at least 1")
        if self.gradient_clip_val is not None and not self.gradient_clip_val >= 0:
            why = f"gradient_clip_val is {self.gradient_clip_val!r}"
            raise UsageError("E-OPTION", None, why, expected="at least 0, or None for no limit")
        share = isinstance(self.val_check_interval, float)
        if not 0 < self.val_check_interval <= (1 if share else math.inf):
            why = f"val_check_interval is {self.val_check_interval!r}"
            raise UsageError("E-OPTION", None, why, expected="a number of batches, or a share from 0 to 1")
        limits = ("limit_train_batches", "limit_val_batches", "limit_test_batches", "limit_predict_batches")
        for name in (*limits, "overfit_batches"):
            value = getattr(self, name)
            if value < 0 or (isinstance(value, float) and value > 1):
                raise UsageError("E-OPTION", None, f"{name} is {value!r}", expected="a number, or a share from 0 to 1")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """Settings by name; UsageError for names that there are not, UnsupportedError for what is not done here."""
        settings = dict(given)
        for name in WITHOUT_EFFECT.keys() & settings.keys():
            value = settings.pop(name)
            if value not in WITHOUT_EFFECT[name]:
                only = " or ".join(map(repr, WITHOUT_EFFECT[name]))
                raise UnsupportedError("E-OPTION", None, f"Trainer does not do {name}={value!r}", expected=only)
        known = cls.__dataclass_fields__
        unknown = sorted(settings.keys() - known.keys())
        if unknown:
            hint = did_you_mean(unknown[0], known, f"Settings: {', '.join(known)}")
            raise UsageError("E-OPTION", None, f"Trainer does not have the setting {unknown[0]!r}", hint=hint)
        return cls(**settings)

    def listed(self, name: str) -> list[Any]:
        """A setting that is one object or several, as a list."""
        value = getattr(self, name)
        if value is None or isinstance(value, bool):
            return []
        return list(value) if isinstance(value, Iterable) else [value]
