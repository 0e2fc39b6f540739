"""Files of lazy tensors: safetensors and every other format of weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...runtime.contract.format import ReadOptions
from ...runtime.passes.weights.collect import collect_weights
from ...runtime.tensor.tensor import Tensor
from ..open.open_model import open_model
from .convert import load_file, save_file


def save(tensors: Mapping[str, Any], path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors by name to a file, of safetensors or the format that the suffix says.

    Args:
        tensors: lazy tensors or arrays.
        metadata: strings by name.
    """
    save_file(dict(tensors), path, metadata=None if metadata is None else dict(metadata))


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The tensors of a file by name, quantized ones as floats. Nothing in the file is executed."""
    from ...tensors.operations.creation import from_numpy

    return {name: from_numpy(array) for name, array in load_file(path, dequantize="f32").items()}


def read_weights(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a model file, directory or hf:// repository by name; elements are read when they are used."""
    return dict(collect_weights(open_model(path, ReadOptions(), upgraded=False, dequantized=True, parts=True)))
