"""Device: where a tensor is, as a string that has PyTorch's attributes."""

from __future__ import annotations

from typing import Any

from ...runtime.base.errors import UsageError

TYPES = ("cpu", "cuda", "mps", "meta", "xpu")
"""Kinds of devices that have names; tensors are on the CPU."""


class Device(str):
    """``"cpu"`` or ``"cuda:0"``: equal to the string of its name.

    Args:
        type: a kind, or a kind, a colon and a number, or a `Device`.
        index: the number, None for the only or current device of its kind.
    """

    type: str
    index: int | None  # type: ignore[assignment]

    def __new__(cls, type: Any, index: int | None = None) -> Device:
        kind, _, number = str(type).partition(":")
        if kind not in TYPES or (number and (index is not None or not number.isdecimal())):
            raise UsageError("E-TENSOR-DEVICE", None, f"{str(type)[:40]!r} is not a device", expected=", ".join(TYPES))
        place = int(number) if number else index
        made = super().__new__(cls, kind if place is None else f"{kind}:{place}")
        made.type, made.index = kind, place
        return made

    @staticmethod
    def cpu() -> Device:
        """The CPU, by candle's spelling."""
        return CPU

    @staticmethod
    def cuda(ordinal: int = 0) -> Device:
        """A CUDA card by its number, by candle's spelling: for models that run there; tensors are on the CPU."""
        return Device("cuda", ordinal)

    def __reduce__(self) -> tuple[Any, ...]:
        return Device, (str(self),)


CPU = Device("cpu")
