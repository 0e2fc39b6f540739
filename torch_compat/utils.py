"""`utils`: where PyTorch's scripts look for data loaders and checkpoints of activations."""

from __future__ import annotations

from ..tensors.autograd import checkpoint as checkpoint
from ..training import data as data
from ..training.loggers import summary_writer as tensorboard
from .neighbours import dlpack as dlpack

__all__ = ["checkpoint", "data", "dlpack", "tensorboard"]


def __dir__() -> list[str]:
    return list(__all__)
