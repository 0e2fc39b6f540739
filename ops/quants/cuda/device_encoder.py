"""Device encoders: codecs whose `Encoder` runs on CUDA, slice by slice."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ....runtime.tensor.block_codec import Codec, Encoder, codec_of
from ....runtime.tensor.dtype import BlockType
from .encode import READS, encode
from .stream_lanes import Lanes

SLICE = 1 << 22
"""Elements of a slice: enough blocks to fill the device, few enough for several lanes."""
SPENT = 10
"""Upper bound of device bytes per element of a lane, with rounding."""


class DeviceEncoder(Encoder):
    """An encoder that computes the CPU encoder's bytes on the device, for rows and blocks in host memory; threads
    share several lanes."""

    def __init__(self, codec: Codec, lanes: Lanes, slice: int = SLICE) -> None:
        assert codec.encoder is not None
        super().__init__(*codec.encoder.kernels, codec.encoder.lattice)
        self.codec = codec
        self.lanes = lanes
        self.slice = slice if lanes.limit is None else max(1, min(slice, lanes.limit // (lanes.count * SPENT)))

    @property
    def is_cached(self) -> bool:
        """Device kernels are compiled on first launch."""
        return True

    def load(self) -> None:
        """A no-op: device kernels are not compiled ahead."""

    def run(self, source: int, kind: int, shape: tuple[int, int], importance: int, out: int) -> float:
        """As `Encoder.run`. Raises LimitError where the device has too little memory."""
        rows, columns = shape
        if not rows * columns:
            return 0.0
        values = _seen(source, READS[kind][0], rows * columns).reshape(shape)
        weights = _seen(importance, np.dtype(np.float32), columns) if importance else None
        blocks = _seen(
            out, np.dtype(np.uint8), rows * (columns // self.codec.dtype.block) * self.codec.dtype.block_nbytes
        )
        with self.lanes.lane() as lane:
            return encode(self.codec, lane, kind, values, weights, blocks)


def _seen(address: int, dtype: np.dtype[Any], count: int) -> np.ndarray:
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memoryview(memory), dtype)


def on_device(lanes: Lanes) -> Callable[[BlockType], Codec]:
    """`codec_of` with encoders for the lanes of a device."""

    @functools.cache
    def found(dtype: BlockType) -> Codec:
        codec = codec_of(dtype)
        return codec if codec.encoder is None else dataclasses.replace(codec, encoder=DeviceEncoder(codec, lanes))

    return found
