"""LightningDataModule: loaders of training, validation, test and prediction in one object."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from .hyper_parameters import HyperParameters, arguments_of


class LightningDataModule:
    """Base of data modules: a subclass defines the loaders that it has.

    Attributes:
        hparams: what `save_hyperparameters` kept.
    """

    def prepare_data(self) -> None:
        """Called before `setup`: for downloads and the like."""

    def save_hyperparameters(self, *names: str, ignore: str | Sequence[str] = (), logger: bool = True) -> None:
        """Keep the arguments of ``__init__``, which calls this, in `hparams`.

        Args:
            names: of the arguments; none for all but `ignore`.
        """
        frame = inspect.currentframe()
        assert frame is not None
        left = (ignore,) if isinstance(ignore, str) else ignore
        self.hparams.update(arguments_of(frame.f_back, names, left))

    @property
    def hparams(self) -> HyperParameters:
        """Hyper-parameters by name."""
        found: HyperParameters = self.__dict__.setdefault("_hparams", HyperParameters())
        return found

    def setup(self, stage: str) -> None:
        """Called before loaders are asked for; `stage` is fit, validate, test or predict."""

    def train_dataloader(self) -> Any:
        """Batches to train with."""
        return None

    def val_dataloader(self) -> Any:
        """Batches to validate with."""
        return None

    def test_dataloader(self) -> Any:
        """Batches to test with."""
        return None

    def predict_dataloader(self) -> Any:
        """Batches to predict from."""
        return None


def loaders_of(name: str, given: Any, *owners: Any) -> Any:
    """The given loaders, or those of the first owner with a method of this name."""
    for owner in owners:
        if given is None and hasattr(owner, name):
            given = getattr(owner, name)()
    return given


def as_list(loaders: Any) -> list[Any]:
    """Loaders of evaluation: one or several."""
    if loaders is None:
        return []
    return list(loaders) if isinstance(loaders, list | tuple) else [loaders]
