"""Files of lazy tensors: safetensors and every other format of weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.contract.format import ReadOptions
from ...runtime.passes.weights.collect import collect_weights
from ...runtime.tensor.tensor import Tensor
from ..open.open_model import open_model
from .convert import load_file, save_file


def save(tensors: Mapping[str, Any], path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors by name to a file, of safetensors or the format that the suffix says.

    Args:
        tensors: lazy tensors or arrays; or a checkpoint of nested dictionaries and lists of these, numbers, strings and
            None, as of ``{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}``, which is
            written as safetensors whatever the suffix.
        metadata: strings by name; for flat dictionaries of tensors alone.

    Raises UsageError for anything else, such as a module.
    """
    if not isinstance(tensors, Mapping):
        why = f"{type(tensors).__name__} is not a dictionary of tensors"
        raise UsageError("E-TENSOR-SAVE", None, why, hint="Save state_dict() of a module or an optimizer")
    if metadata is None and not all(hasattr(each, "__array__") for each in tensors.values()):
        from ...training.checkpoint.nested_file import save_nested

        save_nested(tensors, path)
    else:
        save_file(dict(tensors), path, metadata=None if metadata is None else dict(metadata))


def load(path: str | os.PathLike[str], map_location: Any = None, weights_only: bool = True) -> dict[str, Any]:
    """The tensors of a file by name, quantized ones as floats; or the checkpoint that `save` wrote.

    Args:
        map_location: the CPU's device.
        weights_only: either way nothing in the file is executed.
    """
    from ...tensors.core.nested import mapped
    from ...tensors.operations.creation import check_device, from_numpy
    from ...training.checkpoint.nested_file import is_nested, load_nested

    check_device(map_location)
    if is_nested(path):
        found: dict[str, Any] = mapped(
            load_nested(path), lambda item: from_numpy(item) if isinstance(item, np.ndarray) else item
        )
        return found
    return {name: from_numpy(array) for name, array in load_file(path, dequantize="f32").items()}


def read_weights(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a model file, directory or hf:// repository by name; elements are read when they are used."""
    return dict(collect_weights(open_model(path, ReadOptions(), upgraded=False, dequantized=True, parts=True)))
