"""Run: the state of a trainer that callbacks, loggers and modules read."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

from ...optim import Optimizer
from ..loggers.logger import Logger
from .logged import Collector
from .schedule import Schedule


class Run(ABC):
    """The state of a trainer.

    Attributes:
        current_epoch: number of the epoch, from 0 on.
        global_step: steps that optimizers have made.
        batch_count: batches that the epoch has had.
        batches: batches of an epoch; None if that is not known.
        is_last_batch: whether the batch is the last one of its epoch; False if their number is not known.
        accumulate_grad_batches: batches whose gradients one step of the optimizer is made of.
        callback_metrics: all logged values by name, the newest ones.
        logged_metrics: of those, what loggers were given.
        progress_bar_metrics: of those, what the progress bar shows.
        should_stop: whether training ends after this batch, or later for the sake of `min_epochs` and `min_steps`.
        training: whether `fit` runs; `sanity_checking`: whether it tries the validation before training.
        has_validation: whether `fit` validates.
        state: initialized, fitting, validating, testing or predicting, or finished.
    """

    accumulate_grad_batches: int

    def __init__(self) -> None:
        self.current_epoch = 0
        self.global_step = 0
        self.batch_count = 0
        self.batches: int | None = None
        self.is_last_batch = False
        self.callback_metrics: dict[str, float] = {}
        self.logged_metrics: dict[str, float] = {}
        self.progress_bar_metrics: dict[str, float] = {}
        self.should_stop = False
        self.training = False
        self.sanity_checking = False
        self.has_validation = False
        self.state = "initialized"
        self.optimizers: list[Optimizer] = []
        self.schedules: list[Schedule] = []
        self.loggers: list[Logger] = []
        self.collector = Collector()
        self.epochs: int | None = None

    @property
    def logger(self) -> Logger | None:
        """The first logger."""
        return self.loggers[0] if self.loggers else None

    @property
    def log_dir(self) -> str:
        """The folder of the run: that of the first logger that has one, or where the trainer writes."""
        return next((logger.log_dir for logger in self.loggers if logger.log_dir is not None), self.root)

    @property
    @abstractmethod
    def root(self) -> str:
        """The folder that the trainer writes to."""

    @property
    @abstractmethod
    def logs_now(self) -> bool:
        """Whether loggers are given the values of this step."""

    @abstractmethod
    def save_checkpoint(self, filepath: str | os.PathLike[str], weights_only: bool = False) -> None:
        """Write a checkpoint."""

    @abstractmethod
    def renew_statistics(self) -> None:
        """Recompute the running statistics of batch norms from the batches of training."""

    @contextlib.contextmanager
    def collecting(self) -> Iterator[Collector]:
        """A collector of the metrics logged in the block."""
        outer, self.collector = self.collector, Collector()
        try:
            yield self.collector
        finally:
            self.collector = outer

    def write_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Hand values to the loggers, with the number of the epoch.

        Args:
            step: that they belong to; None for the next step of the optimizer.
        """
        self.logged_metrics.update(metrics)
        for logger in self.loggers:
            logger.log_metrics({"epoch": self.current_epoch, **metrics}, self.global_step if step is None else step)
