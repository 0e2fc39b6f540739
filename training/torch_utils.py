"""`utils`: where PyTorch's scripts look for data loaders and checkpoints of activations."""

from __future__ import annotations

from ..tensors.autograd import checkpoint as checkpoint
from . import data as data
from .loggers import summary_writer as tensorboard

__all__ = ["checkpoint", "data", "tensorboard"]
