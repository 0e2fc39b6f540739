"""Settings of PyTorch that have no effect here, so that scripts which read or set them run."""

from __future__ import annotations

from typing import Any

from ..runtime.base.errors import UsageError
from ..tensors.core.device import CPU, Device
from ..tensors.core.promotion import set_default_dtype
from ..tensors.core.tensor import Tensor
from ..tensors.operations.creation import check_device
from ..tensors.operations.settings import get_num_threads
from . import typed_tensors

channels_last, channels_last_3d = "torch.channels_last", "torch.channels_last_3d"
contiguous_format, preserve_format = "torch.contiguous_format", "torch.preserve_format"
strided = "torch.strided"
PRECISIONS = ("highest", "high", "medium")
"""PyTorch's words for the precision of products."""


def compile(model: Any = None, **options: Any) -> Any:
    """The module or function itself, also as a decorator: what it computes becomes plans, which are kept by their
    structure and compiled once that pays, as it is. `options` are PyTorch's, without effect. See `jit` for functions
    whose Python runs once."""
    return (lambda made: made) if model is None else model


def are_deterministic_algorithms_enabled() -> bool:
    """True: equal inputs give equal results."""
    return True


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Equal inputs give equal results either way."""


def get_float32_matmul_precision() -> str:
    """The precision of products of f32: "highest"."""
    return "highest"


def set_float32_matmul_precision(precision: str) -> None:
    """Take PyTorch's words; products of f32 are of the highest precision either way."""
    if precision not in PRECISIONS:
        expected = ", ".join(PRECISIONS)
        raise UsageError("E-TENSOR-VALUE", None, f"{precision!r} is not a precision", expected=expected)


def get_num_interop_threads() -> int:
    """Number of threads that compute."""
    return get_num_threads()


def set_num_interop_threads(num: int) -> None:
    """Expressions are computed one after the other, so that this has no effect."""


def get_default_device() -> Device:
    """Device of new tensors: the CPU."""
    return CPU


def set_default_device(device: Any) -> None:
    """Tensors are on the CPU; UsageError for another device."""
    check_device(device)


def set_default_tensor_type(t: Any) -> None:
    """Set the dtype of new float tensors, by the name or object of a class of tensors such as `DoubleTensor`."""
    name = t.rpartition(".")[2] if isinstance(t, str) else t.__name__
    set_default_dtype(getattr(typed_tensors, name).dtype)


def is_inference(input: Tensor) -> bool:
    """Whether a tensor was made in inference mode: False, such tensors are as others here."""
    return False
