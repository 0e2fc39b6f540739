"""Checkpoints as PyTorch has them: nested values in a zip archive that torch.load(weights_only=True) reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ...formats import pytorch
from ...formats.containers.torch.nested_writer import nested_file
from ...formats.containers.torch.plain_values import Found
from ...nn.core.parameter import Parameter
from ...runtime.contract.format import ReadOptions
from ...runtime.tensor.file import Source
from ...runtime.tensor.stored_tensor import StoredTensor
from ...tensors.core.conversion import array_of
from ...tensors.core.tensor import Tensor
from ...tensors.writes.shared_memory import from_numpy
from .nested_file import write_whole

SUFFIXES = frozenset((".pt", ".pth", ".bin", ".ckpt"))


def save_torch(value: Any, path: str | os.PathLike[str]) -> None:
    """Write a nested value; UsageError if it holds something else than tensors and plain values."""
    write_whole(nested_file(Path(path).name, value, _tensor_of), Path(path))


def _tensor_of(item: Any) -> StoredTensor | None:
    """The tensor that an object is, or None."""
    if isinstance(item, StoredTensor):
        return item
    if hasattr(item, "__array__") or hasattr(item, "__dlpack__"):
        return StoredTensor.of(array_of(item))
    return None


def load_torch(path: str | os.PathLike[str]) -> Any:
    """The value of a PyTorch file; UnsupportedError if it holds pickled objects, such as modules."""
    source = Source(path)
    try:
        return pytorch.read_values(source, ReadOptions(), _made)
    finally:
        source.close()


def is_torch(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a checkpoint of PyTorch."""
    if not os.path.isfile(path):
        return False
    source = Source(path)
    try:
        return pytorch.sniff(source)
    finally:
        source.close()


def _made(found: Found) -> Tensor:
    """Our tensor, whose elements are read now."""
    made = from_numpy(np.array(found.tensor.numpy()))
    if found.is_parameter:
        return Parameter(made, found.requires_grad)
    return made.requires_grad_() if found.requires_grad else made
