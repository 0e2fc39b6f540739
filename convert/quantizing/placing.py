"""Placing: blocks that are encoded on a card."""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.cuda.machine import number_of
from ...runtime.dtype import BlockType
from ...runtime.quant import Codec


def encoding_on(device: str, memory: int | None = None) -> Callable[[BlockType], Codec]:
    """The codecs of a device, which hold at most `memory` bytes there; raises UsageError for a name that is none, and UnsupportedError where it
    cannot be used."""
    number_of(device)
    from ...ops.quants.device.codecs import on_device
    from ...ops.quants.device.lanes import Lanes

    return on_device(Lanes(device, memory))
