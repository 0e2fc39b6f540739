"""KV-cache codecs: float, int8, int4 and float8."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....runtime.base.dataclass import dataclass
from ....rules.bit_packing import unpacked
from ....rules.shape_rules import shape_error


@dataclass(frozen=True)
class Codec:
    """Codec of a KV cache: floats as they are, or signed integers of 4 or 8 bits (two in a byte, with 8 added) or f8,
    with a scale.

    Attributes:
        dtype: of the stored array, None where it is that of the numbers.
        scale: broadcasts to [heads, length, size]; None for numbers as they are.
    """

    dtype: np.dtype[Any] | None
    scale: np.ndarray | None
    bits: int

    def size(self, stored: int) -> int:
        """Elements in a row of so many stored ones."""
        return stored * 2 if self.scale is not None and self.bits == 4 else stored

    def encoded(self, x: np.ndarray) -> np.ndarray:
        """Numbers [heads, length, size] as they are stored."""
        if self.scale is None or self.dtype is None:
            return x if self.dtype is None else x.astype(self.dtype)
        ratio = x.astype(np.float32) / self.scale
        if self.dtype.kind not in "iu":
            return np.clip(ratio, -448, 448).astype(self.dtype)
        low = -(1 << (self.bits - 1))
        codes = np.clip(np.rint(ratio), low, -low - 1).astype(np.int8)
        if self.bits == 8:
            return (
                codes.astype(self.dtype) if self.dtype == np.int8 else (codes.astype(np.int16) + 128).astype(np.uint8)
            )
        shifted = (codes + 8).astype(np.uint8)
        shifted = np.pad(shifted, [(0, 0), (0, 0), (0, shifted.shape[2] % 2)])
        made: np.ndarray = shifted[..., ::2] | shifted[..., 1::2] << 4
        return made

    def decoded(self, stored: np.ndarray, dtype: np.dtype[Any], size: int) -> np.ndarray:
        """Stored numbers [heads, length, stored size] as they are used."""
        if self.scale is None:
            return stored.astype(dtype, copy=False)
        if self.dtype is not None and self.dtype == np.uint8 and self.bits == 4:
            return ((unpacked(stored, 4, size).astype(np.float32) - 8) * self.scale).astype(dtype)
        wide = stored.astype(np.float32) - (128 if stored.dtype == np.uint8 else 0)
        return (wide * self.scale).astype(dtype)


def codec(dtype: np.dtype[Any] | None, scale: np.ndarray | None, kind: str, bits: int) -> Codec:
    """The codec of a cache; `kind` is NONE, PER_TENSOR or PER_CHANNEL."""
    if dtype is None or kind in ("", "NONE") or scale is None:
        return Codec(None if dtype is None or (dtype.kind == "f" and dtype.itemsize > 1) else dtype, None, 0)
    if kind not in ("PER_TENSOR", "PER_CHANNEL"):
        raise shape_error("attention", f"a cache quantized as {kind!r}")
    spread = scale.astype(np.float32)
    return Codec(dtype, spread.reshape(()) if spread.size == 1 else spread.reshape(spread.shape[-3:]), bits or 8)
