"""Placing: blocks that are encoded on a card, and which types the CPU encodes all the same, which is noted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...runtime.cuda.machine import number_of
from ...runtime.dtype import BlockType
from ...runtime.graph import Graph
from ...runtime.quant import Codec
from .choosing import Choice


def encoding_on(device: str, graph: Graph, choices: Sequence[Choice]) -> Callable[[BlockType], Codec]:
    """The codecs of a device; raises UsageError for a name that is none, and UnsupportedError where it cannot be used."""
    number_of(device)
    from ...ops.quants.device.codecs import on_device, why_not

    wanted = {choice.dtype for choice in choices if choice.changes and isinstance(choice.dtype, BlockType)}
    left = sorted(dtype.name for dtype in wanted if why_not(dtype) is not None)
    if left:
        graph.note("W-DEVICE-CPU", f"blocks of {', '.join(left)} are encoded on the CPU: their search tries many scales in the lanes of one block")
    return on_device(device)
