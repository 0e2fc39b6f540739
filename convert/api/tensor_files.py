"""Files of tensors: safetensors and every other format of weights."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from ...formats.containers.torch.plain_values import CODE as OBJECT
from ...runtime.base.errors import UnsupportedError, UsageError
from ...runtime.contract.format import ReadOptions
from ...runtime.passes.weights.collect import collect_weights
from ...runtime.tensor.stored_tensor import StoredTensor
from ..open.open_model import open_model
from .convert import load_file, save_file

ROOT = "candle_convert.root"
"""The name of what is saved alone: a tensor, or a list."""
SAFETENSORS = ".safetensors"


def save(tensors: Any, path: str | os.PathLike[str] | IO[bytes], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors by name to a file, of safetensors or the format that the suffix says.

    Args:
        tensors: tensors or arrays; or a checkpoint of nested dictionaries and lists of these, numbers, strings and
            None, as of ``{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}``; or a tensor,
            or a list of all that. With the suffix .pt, .pth, .bin or .ckpt they are written as PyTorch writes them, for
            torch.load(weights_only=True); with any other suffix as safetensors with a structure in its metadata.
        path: or a file that is open for writing, by the suffix of its name if that is .safetensors or one of PyTorch's;
            any other, as an `io.BytesIO`, gets what torch.load reads, or safetensors where `metadata` is given.
        metadata: strings by name; for flat dictionaries of tensors alone.

    Raises UsageError for anything else, such as a module.
    """
    from ...training.checkpoint.torch_file import SUFFIXES, save_torch

    if not isinstance(path, str | os.PathLike):
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder, "tensors").with_suffix(_suffix(path) or (".pt" if metadata is None else SAFETENSORS))
            save(tensors, target, metadata)
            path.write(target.read_bytes())
        return
    if Path(path).suffix.lower() in SUFFIXES and metadata is None:
        save_torch(tensors, path)
        return
    if hasattr(tensors, "__array__") or isinstance(tensors, list | tuple):
        tensors = {ROOT: [tensors]}
    if not isinstance(tensors, Mapping):
        why = f"{type(tensors).__name__} is not a dictionary of tensors"
        raise UsageError("E-TENSOR-SAVE", None, why, hint="Save state_dict() of a module or an optimizer")
    if metadata is None and not all(hasattr(tensor, "__array__") for tensor in tensors.values()):
        from ...training.checkpoint.nested_file import save_nested

        save_nested(tensors, path)
    else:
        save_file(dict(tensors), path, metadata=None if metadata is None else dict(metadata))


def _suffix(file: IO[bytes]) -> str | None:
    """The suffix of the name of an open file if it is .safetensors or one of PyTorch's, else None."""
    from ...training.checkpoint.torch_file import SUFFIXES

    name = getattr(file, "name", None)
    suffix = Path(os.fsdecode(name)).suffix.lower() if isinstance(name, str | bytes) else ""
    return suffix if suffix in SUFFIXES or suffix == SAFETENSORS else None


def load(path: str | os.PathLike[str] | IO[bytes], map_location: Any = None, weights_only: bool = True) -> Any:
    """The tensors of a file by name, quantized ones as floats; or the checkpoint, the tensor or list that `save` wrote.

    Files of PyTorch give what torch.load(weights_only=True) gives: all entries, nested as they are. Of a file with
    pickled objects, which that refuses, the tensors alone are read, with a warning.

    Args:
        path: or a file that is open for reading, or an `io.BytesIO`.
        map_location: the CPU's device.
        weights_only: either way nothing in the file is executed.
    """
    from ...tensors.core.nested import mapped
    from ...tensors.operations.creation import check_device
    from ...tensors.writes.shared_memory import from_numpy
    from ...training.checkpoint.nested_file import is_nested, load_nested
    from ...training.checkpoint.torch_file import is_torch, load_torch

    if not isinstance(path, str | os.PathLike):
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder, "tensors")
            target.write_bytes(path.read())
            return load(target, map_location)
    check_device(map_location)
    if is_nested(path):
        found: dict[str, Any] = mapped(
            load_nested(path), lambda item: from_numpy(item) if isinstance(item, np.ndarray) else item
        )
        alone = found.get(ROOT) if len(found) == 1 else None
        return alone[0] if isinstance(alone, list) and len(alone) == 1 else found
    if is_torch(path):
        try:
            return load_torch(path)
        except UnsupportedError as error:
            if error.code != OBJECT:
                raise
            warnings.warn(f"{error.why}: only the tensors of {Path(path).name} are loaded", stacklevel=2)
    return {name: from_numpy(array) for name, array in load_file(path, dequantize="f32").items()}


def read_weights(path: str | os.PathLike[str]) -> dict[str, StoredTensor]:
    """The tensors of a model file, directory or hf:// repository by name; elements are read when they are used."""
    return dict(collect_weights(open_model(path, ReadOptions(), upgraded=False, dequantized=True, parts=True)))
