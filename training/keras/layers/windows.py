"""Windows of images with channels last: padding as Keras has it, and dims in the order of our operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....nn.functional.sizes import per_dim
from ....runtime.base.errors import UsageError
from ....tensors.core.tensor import Tensor

PADDINGS = ("valid", "same")


def channels_first(x: Tensor) -> Tensor:
    """[N, ..., C] as [N, C, ...]."""
    return x.movedim(-1, 1)


def channels_last(x: Tensor) -> Tensor:
    """[N, C, ...] as [N, ..., C]."""
    return x.movedim(1, -1)


def sizes(given: Any, dims: int, what: str) -> tuple[int, ...]:
    """A number for each dim."""
    return per_dim(given, dims, what)


def checked_padding(padding: str, known: Sequence[str] = PADDINGS) -> str:
    """A word in lower case; UsageError for others."""
    if str(padding).lower() not in known:
        raise UsageError("E-NN-VALUE", None, f"{padding!r} is not a padding", expected=", ".join(known))
    return str(padding).lower()


def same(lengths: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Elements before the dims, then after them, with which an output has a window for each stride; where their number
    is odd, there is one more after a dim."""
    before, after = [], []
    for length, window, step, spread in zip(lengths, kernel, strides, dilation, strict=True):
        total = max((-(-length // step) - 1) * step + (window - 1) * spread + 1 - length, 0)
        before.append(total // 2)
        after.append(total - total // 2)
    return [*before, *after]


def for_pad(pads: Sequence[int]) -> list[int]:
    """The same in the order of `pad`: before and after the last dim, then the one before it."""
    half = len(pads) // 2
    return [each for dim in reversed(range(half)) for each in (pads[dim], pads[half + dim])]
