"""Codecs whose encoders run on the device, for all who encode slice by slice."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from ....runtime.dtype import BlockType
from ....runtime.quant import KINDS, Codec, Encoder
from .. import codec_of
from .encoding import encoded

ELEMENTS: dict[str, Any] = {}
DTYPES = {KINDS["f32"]: np.dtype(np.float32), KINDS["f16"]: np.dtype(np.float16), KINDS["bf16"]: np.dtype(ml_dtypes.bfloat16)}
_one = threading.Lock()


class DeviceEncoder(Encoder):
    """An encoder with the bytes of the CPU's, for rows and blocks in host memory."""

    def __init__(self, codec: Codec, device: str) -> None:
        assert codec.encoder is not None
        super().__init__(*codec.encoder.kernels, codec.encoder.lattice)
        self.codec = codec
        self.device = device

    @property
    def stored(self) -> bool:
        """Kernels of the device are compiled when they are first launched."""
        return True

    def load(self) -> None:
        """There is nothing to compile ahead."""

    def run(self, source: int, kind: int, shape: tuple[int, int], importance: int, out: int) -> float:
        """As `Encoder.run`."""
        rows, columns = shape
        values = _seen(source, DTYPES[kind], rows * columns).reshape(shape).astype(np.float32, copy=False)
        largest = float(np.abs(values).max(initial=0))
        weights = _seen(importance, np.dtype(np.float32), columns) if importance else None
        if np.isfinite(largest):
            with _one:
                blocks = encoded(self.codec, values, weights, self.device)
            _seen(out, np.dtype(np.uint8), blocks.size)[:] = blocks.reshape(-1)
        return largest


def _seen(address: int, dtype: np.dtype[Any], count: int) -> np.ndarray:
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memoryview(memory), dtype)


def on_device(device: str) -> Callable[[BlockType], Codec]:
    """`codec_of` with encoders for a device that there is."""

    @functools.cache
    def found(dtype: BlockType) -> Codec:
        codec = codec_of(dtype)
        return codec if codec.encoder is None else dataclasses.replace(codec, encoder=DeviceEncoder(codec, device))

    return found
