"""`utils`: where PyTorch's scripts look for data loaders and checkpoints of activations."""

from __future__ import annotations

from . import data as data

__all__ = ["data"]
