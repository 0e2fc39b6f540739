"""Tensors as other libraries' tensors, for the libraries that happen to be installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .dtype import BY_TORCH
from .errors import UnsupportedError
from .storage import Held
from .tensor import Tensor

if TYPE_CHECKING:
    import torch


def to_torch(tensor: Tensor) -> torch.Tensor:
    """A torch tensor that owns a copy of the values."""
    import torch

    if tensor.dtype.torch is None:
        raise UnsupportedError("E-DTYPE-TORCH", None, f"torch has no dtype for {tensor.dtype.name}")
    dtype = getattr(torch, tensor.dtype.torch)
    shape = tensor.shape if tensor.dtype.bits >= 8 else (*tensor.shape[:-1], tensor.shape[-1] // tensor.dtype.block)
    if not tensor.nbytes:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(tensor.raw()), dtype=torch.uint8).view(dtype).reshape(shape)


def from_torch(value: torch.Tensor) -> Tensor:
    """A tensor that holds a copy of a torch tensor's values."""
    import torch

    dtype = BY_TORCH.get(str(value.dtype).removeprefix("torch."))
    if dtype is None:
        raise UnsupportedError("E-DTYPE-TORCH", None, f"{value.dtype} is not a dtype we know")
    plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    data = plain.reshape(-1).view(torch.uint8).numpy() if plain.numel() else b""
    shape = tuple(value.shape) if dtype.bits >= 8 else (*value.shape[:-1], value.shape[-1] * dtype.block)
    return Tensor(dtype, shape, Held(bytes(data)))
