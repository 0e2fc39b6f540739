"""Optimizers of tensors that require gradients, schedules of their learning rates, and gradient clipping; names and
results are those of PyTorch's `torch.optim`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..tensors.autograd.clipping import clip_grad_norm_ as clip_grad_norm_
from ..tensors.autograd.clipping import clip_grad_value_ as clip_grad_value_
from . import lr_scheduler as lr_scheduler
from .core.optimizer import Optimizer as Optimizer
from .optimizers.adadelta import Adadelta as Adadelta
from .optimizers.adafactor import Adafactor as Adafactor
from .optimizers.adagrad import Adagrad as Adagrad
from .optimizers.adam import Adam as Adam
from .optimizers.adam import AdamW as AdamW
from .optimizers.adamax import Adamax as Adamax
from .optimizers.asgd import ASGD as ASGD
from .optimizers.lbfgs import LBFGS as LBFGS
from .optimizers.lion import Lion as Lion
from .optimizers.muon import Muon as Muon
from .optimizers.nadam import NAdam as NAdam
from .optimizers.radam import RAdam as RAdam
from .optimizers.rmsprop import RMSprop as RMSprop
from .optimizers.rprop import Rprop as Rprop
from .optimizers.sgd import SGD as SGD
from .optimizers.sparse_adam import SparseAdam as SparseAdam

__all__ = [
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Lion", "Muon", "NAdam",
    "Optimizer", "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam", "clip_grad_norm_", "clip_grad_value_",
    "lr_scheduler",
]  # fmt: skip

if not TYPE_CHECKING:  # for mypy a module with __getattr__ has every name, misspelled ones too

    def __getattr__(name: str) -> Any:
        if name == "swa_utils":  # needs modules, which optimizers do not know
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
