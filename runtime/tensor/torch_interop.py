"""Conversion of tensors to and from PyTorch tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.errors import UnsupportedError
from .dtype import BY_TORCH, DType
from .storage import Storage

if TYPE_CHECKING:
    import torch


def to_torch(dtype: DType, shape: tuple[int, ...], storage: Storage) -> torch.Tensor:
    """A torch tensor that owns a copy of the values of a `Tensor` of this dtype, shape and storage."""
    import torch

    if dtype.torch is None:
        raise UnsupportedError("E-DTYPE-TORCH", None, f"torch has no dtype for {dtype.name}")
    kind = getattr(torch, dtype.torch)
    lengths = shape if dtype.bits >= 8 else (*shape[:-1], shape[-1] // dtype.block)
    if not storage.nbytes:
        return torch.empty(lengths, dtype=kind)
    return torch.frombuffer(bytearray(storage.read(0, storage.nbytes)), dtype=torch.uint8).view(kind).reshape(lengths)


def from_torch(value: torch.Tensor) -> tuple[DType, tuple[int, ...], bytes]:
    """Dtype, shape and a copy of the values of a torch tensor, as a `Tensor` stores them."""
    import torch

    dtype = BY_TORCH.get(str(value.dtype).removeprefix("torch."))
    if dtype is None:
        raise UnsupportedError("E-DTYPE-TORCH", None, f"{value.dtype} is not a dtype we know")
    plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    data = plain.reshape(-1).view(torch.uint8).numpy() if plain.numel() else b""
    shape = tuple(value.shape) if dtype.bits >= 8 else (*value.shape[:-1], value.shape[-1] * dtype.block)
    return dtype, shape, bytes(data)
