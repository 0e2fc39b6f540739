"""Block encoding on a GPU."""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.cuda.device.device import device_index
from ...runtime.tensor.block_codec import Codec
from ...runtime.tensor.dtype import BlockType


def encoding_on(device: str, memory: int | None = None) -> Callable[[BlockType], Codec]:
    """The codecs of a device, which hold at most `memory` bytes there; raises UsageError for a name that is none, and
    UnsupportedError where it cannot be used."""
    device_index(device)
    from ...ops.quants.cuda.device_encoder import on_device
    from ...ops.quants.cuda.stream_lanes import Lanes

    return on_device(Lanes(device, memory))
