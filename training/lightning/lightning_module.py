"""LightningModule: a model with its training step, for `Trainer`. The interface is that of Lightning's class."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ...nn.core.module import Module
from ...nn.core.provided import PROVIDED
from ...runtime.base.errors import UsageError
from ...tensors.autograd.clipping import clip_grad_norm_, clip_grad_value_
from ...tensors.core.tensor import Tensor
from ..checkpoint import run_state
from ..checkpoint.nested_file import load_nested
from ..export.function_graph import graph_of
from ..loop.logged import Entry
from ..loop.run import Run
from ..loop.traced_step import read_in_python
from .hooks import ModuleHooks
from .hyper_parameters import HyperParameters, arguments_of, taken_by

M = TypeVar("M", bound="LightningModule")


class LightningModule(ModuleHooks, Module):
    """A module with steps: a subclass defines `training_step`, and what else of the steps it needs.

    A step that depends on its batch and the parameters alone is traced and becomes one native plan with the backward
    pass and the update. A step that reads the number of the batch, needs values in Python or changes attributes runs as
    Python each time; the trainer says so.

    Attributes:
        automatic_optimization: whether the trainer calls backward and the optimizer; where it is False, the training
            step does so with `manual_backward` and `optimizers`.
        hparams: what `save_hyperparameters` kept.
    """

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "_trainer", None)
        self.automatic_optimization = True

    @property
    def trainer(self) -> Run:
        """The trainer that runs the module; UsageError outside of one."""
        read_in_python("the trainer")
        trainer: Run | None = self.__dict__.get("_trainer")
        if trainer is None:
            why = f"{type(self).__name__} is not attached to a trainer"
            raise UsageError("E-TRAIN-TRAINER", None, why, hint="Call Trainer().fit(module, ...)")
        return trainer

    @trainer.setter
    def trainer(self, trainer: Run | None) -> None:
        object.__setattr__(self, "_trainer", trainer)

    @property
    def current_epoch(self) -> int:
        """Number of the epoch, from 0 on."""
        return self.trainer.current_epoch if self.__dict__.get("_trainer") else 0

    @property
    def global_step(self) -> int:
        """Steps that optimizers have made."""
        return self.trainer.global_step if self.__dict__.get("_trainer") else 0

    def to_onnx(self, file_path: str | os.PathLike[str], input_sample: Any = None, **options: Any) -> None:
        """Write what the module computes for `input_sample`, by default for its ``example_input_array``, as ONNX.

        Raises UsageError without either.
        """
        sample = self.__dict__.get("example_input_array") if input_sample is None else input_sample
        if sample is None:
            raise UsageError(
                "E-TRAIN-SHAPE", os.fspath(file_path), "the inputs are not known", hint="Pass input_sample"
            )
        example = tuple(sample) if isinstance(sample, tuple | list) else (sample,)
        PROVIDED.get("write_graph")(graph_of(self, example, dynamic_batch=True), file_path)

    @property
    def logger(self) -> Any:
        """The first logger of the trainer."""
        return self.trainer.logger

    @property
    def device(self) -> str:
        """The device that holds the parameters."""
        return "cpu"

    @property
    def dtype(self) -> Any:
        """The dtype of the first parameter of floats, None without one."""
        return next((each.dtype for each in self.parameters() if each.dtype.kind == "float"), None)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """The loss of a batch, or a dictionary with the loss under ``loss``; None skips the batch."""
        raise _missing(self, "training_step")

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        """Log the metrics of a batch."""
        raise _missing(self, "validation_step")

    def test_step(self, batch: Any, batch_idx: int) -> Any:
        """Log the metrics of a batch."""
        raise _missing(self, "test_step")

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        """The predictions of a batch: by default what calling the module with it gives."""
        return self(batch)

    def configure_optimizers(self) -> Any:
        """The optimizer, or anything else that Lightning takes: ``[optimizers], [schedulers]``, a dictionary of
        ``optimizer`` and ``lr_scheduler``, or None for no optimizer."""
        raise _missing(self, "configure_optimizers")

    def log(self, name: str, value: Any, prog_bar: bool = False, logger: bool | None = None, **options: Any) -> None:
        """Note a number by name.

        Args:
            value: a number or a tensor of one element.
            prog_bar: show it next to the progress bar.
            logger: hand it to the loggers.
            options: ``on_step`` and ``on_epoch``: log each value, the mean over the epoch, or both; by default each
                value of training steps and the mean of others. ``reduce_fx``: mean, sum, min or max. ``batch_size``:
                weight of the mean, by default the length of the batch's first tensor. Lightning's options of several
                devices are taken without effect.
        """
        entry = Entry(
            name,
            prog_bar,
            logger is not False,
            options.get("on_step"),
            options.get("on_epoch"),
            options.get("reduce_fx", "mean"),
            options.get("batch_size") or 0,
        )
        trainer: Run | None = self.__dict__.get("_trainer")
        if trainer is not None:
            trainer.collector.add(entry, value)

    def log_dict(self, dictionary: Mapping[str, Any], prog_bar: bool = False, **options: Any) -> None:
        """Note several numbers; see `log`."""
        for name, value in dictionary.items():
            self.log(name, value, prog_bar, **options)

    def print(self, *items: Any, **options: Any) -> None:
        """Print, as the built-in function does."""
        print(*items, **options)

    def optimizers(self) -> Any:
        """The optimizer, or a list of several."""
        found = self.trainer.optimizers
        return found[0] if len(found) == 1 else found

    def lr_schedulers(self) -> Any:
        """The schedule of learning rates, a list of several, or None."""
        found = [schedule.scheduler for schedule in self.trainer.schedules]
        return found[0] if len(found) == 1 else found or None

    def manual_backward(self, loss: Tensor, **options: Any) -> None:
        """Compute gradients of a loss; for steps without automatic optimization."""
        loss.backward(**options)

    def toggle_optimizer(self, optimizer: Any, optimizer_idx: int | None = None) -> None:
        """Let only the parameters of an optimizer require gradients, until `untoggle_optimizer`."""
        own = {id(each) for group in optimizer.param_groups for each in group["params"]}
        kept = [(each, each.requires_grad) for each in self.parameters()]
        object.__setattr__(self, "_toggled", kept)
        for each, required in kept:
            each.requires_grad_(required and id(each) in own)

    def untoggle_optimizer(self, optimizer: Any, optimizer_idx: int | None = None) -> None:
        """Let the parameters require gradients that did before `toggle_optimizer`."""
        for each, required in self.__dict__.pop("_toggled", ()):
            each.requires_grad_(required)

    def clip_gradients(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Clip the gradients of an optimizer's parameters by their norm, or each of them with ``value``."""
        if gradient_clip_val is None:
            return
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        clip = clip_grad_value_ if gradient_clip_algorithm == "value" else clip_grad_norm_
        clip(parameters, gradient_clip_val)

    def save_hyperparameters(self, *names: str, ignore: str | Sequence[str] = (), logger: bool = True) -> None:
        """Keep the arguments of ``__init__``, which calls this, in `hparams` and in checkpoints.

        Args:
            names: of the arguments; none for all but `ignore`.
        """
        frame = inspect.currentframe()
        assert frame is not None
        left = (ignore,) if isinstance(ignore, str) else ignore
        object.__setattr__(self, "_log_hparams", logger)
        self.hparams.update(arguments_of(frame.f_back, names, left))

    @property
    def hparams(self) -> HyperParameters:
        """Hyper-parameters by name."""
        found: HyperParameters = self.__dict__.setdefault("_hparams", HyperParameters())
        return found

    def freeze(self) -> None:
        """Train no parameter, and go to evaluation mode."""
        self.requires_grad_(False)
        self.eval()

    def unfreeze(self) -> None:
        """Train all parameters, and go to training mode."""
        self.requires_grad_(True)
        self.train()

    @classmethod
    def load_from_checkpoint(
        cls: type[M], checkpoint_path: str | os.PathLike[str], strict: bool = True, **arguments: Any
    ) -> M:
        """A module with the weights of a checkpoint, made with `arguments` and the hyper-parameters that it takes.

        Raises FormatError for checkpoints that are damaged or without weights, UsageError for weights that do not fit.
        """
        checkpoint, path = load_nested(checkpoint_path), str(checkpoint_path)
        saved = taken_by(cls, run_state.hyper_parameters(checkpoint, path))
        with run_state.made_with({name: value for name, value in saved.items() if name not in arguments}, path):
            made = cls(**{**saved, **arguments})
        made.on_load_checkpoint(checkpoint)
        made.load_state_dict(run_state.weights(checkpoint, path), strict=strict)
        return made


def _missing(module: LightningModule, name: str) -> UsageError:
    return UsageError("E-TRAIN-MODULE", None, f"{type(module).__name__} does not define {name}()")


def defines(module: LightningModule, name: str) -> bool:
    """Whether a module has a method of its own, and not that of `LightningModule`."""
    return getattr(type(module), name) is not getattr(LightningModule, name)
