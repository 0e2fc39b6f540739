"""ONNX conversion rules between all element types, strings included (Cast, opset 25)."""

from __future__ import annotations

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.tensor.dtype import DType
from ..rules.shape_rules import model_error

EIGHT_BITS = ("f8_e4m3", "f8_e4m3fnuz", "f8_e5m2", "f8_e5m2fnuz")
SPECIAL_STRINGS = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}


def cast_to(x: np.ndarray, dtype: DType, saturate: bool = True, round_mode: str = "up") -> np.ndarray:
    """The values of `x` in another element type.

    Args:
        saturate: values beyond the range of an 8-bit float become its largest one, else NaN or infinity.
        round_mode: "up", "down" or "nearest", for powers of two (f8_e8m0) only.
    """
    with np.errstate(all="ignore"):
        if x.dtype.kind in "OUT":
            return _from_strings(x, dtype)
        if dtype.kind == "text":
            return _to_strings(x)
        wanted = dtype.as_numpy()
        if x.dtype == wanted:
            return x
        if dtype.kind == "bool":
            return x != x.dtype.type(0)
        if dtype.name in EIGHT_BITS:
            return _to_eight_bits(_spread(x), wanted, saturate)
        if dtype.name == "f8_e8m0":
            return _to_powers_of_two(x.astype(np.float32), saturate, round_mode).view(wanted)
        if dtype.kind in ("int", "uint") and x.dtype.kind not in "iub":
            return _to_integers(_spread(x), dtype)
        return _spread(x).astype(wanted) if x.dtype.kind == "V" or wanted.kind == "V" else x.astype(wanted)


def _spread(x: np.ndarray) -> np.ndarray:
    """Types without casts of their own as f32, which holds all their values."""
    return x.astype(np.float32) if x.dtype.kind == "V" else x


def _to_integers(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Cut toward zero. What is out of range keeps its lowest bits, as integers do; in types below a byte it is what
    ml_dtypes gives, as in the ONNX suite: the lowest bits before version 0.7, 0 since."""
    wanted = dtype.as_numpy()
    if x.dtype.kind == "f" and 8 <= dtype.bits < 64:
        x = np.where(np.isfinite(x), x, np.copysign(2.0**63, x)).astype(np.int64)
    return x.astype(wanted)


def _to_eight_bits(x: np.ndarray, wanted: np.dtype, saturate: bool) -> np.ndarray:
    x = x if x.dtype.kind == "f" else x.astype(np.float32)
    found = x.astype(wanted)
    if not saturate:
        return found
    back = found.astype(np.float32)
    codes = np.arange(256, dtype=np.uint8).view(wanted).astype(np.float32)
    largest = codes[np.isfinite(codes)].max()
    return np.where(~np.isnan(x) & ~np.isfinite(back), np.copysign(largest, x).astype(wanted), found)


def _to_powers_of_two(x: np.ndarray, saturate: bool, round_mode: str) -> np.ndarray:
    """Exponents as bytes: 2**(byte - 127), 255 is NaN. The sign is lost."""
    if round_mode not in ("up", "down", "nearest"):
        raise model_error("Cast has no such rounding", expected="up, down or nearest", found=round_mode)
    bits = np.ascontiguousarray(x).view(np.uint32)
    exponent = ((bits >> 23) & 0xFF).astype(np.int32)
    fraction = bits & 0x7FFFFF
    if round_mode == "up":
        exponent = exponent + (fraction > 0)
    elif round_mode == "nearest":
        exponent = exponent + ((fraction > 0x400000) | ((fraction == 0x400000) & (exponent > 0)))
    exponent = np.minimum(exponent, 254 if saturate else 255)
    return np.where((bits >> 23) & 0xFF == 0xFF, 255, exponent).astype(np.uint8).reshape(x.shape)


def _to_strings(x: np.ndarray) -> np.ndarray:
    """Shortest digits that give the value back."""
    x = _spread(x)
    strings = [str(item) for item in x.reshape(-1)]
    if x.dtype.kind == "f":
        strings = [SPECIAL_STRINGS.get(text, text) for text in strings]
    return np.array(strings, object).reshape(x.shape)


def _from_strings(x: np.ndarray, dtype: DType) -> np.ndarray:
    if dtype.kind == "text":
        return x
    wanted = dtype.as_numpy()
    if dtype.kind in ("int", "uint"):
        whole = [_integer(item) for item in x.reshape(-1)]
        wide = np.array([item & (2**64 - 1) for item in whole], np.uint64).reshape(x.shape)
        return wide.view(np.int64).astype(np.int8 if dtype.bits < 8 else wanted).astype(wanted)
    reals = np.array([_real(item) for item in x.reshape(-1)], np.float64).reshape(x.shape)
    return cast_to(reals, dtype) if dtype.kind == "bool" or wanted.kind == "V" else reals.astype(wanted)


def _real(text: object) -> float:
    try:
        return float(str(text))
    except ValueError:
        raise _no_number(text) from None


def _integer(text: object) -> int:
    try:
        return int(str(text))
    except ValueError:
        try:
            return int(float(str(text)))
        except (ValueError, OverflowError):
            raise _no_number(text) from None


def _no_number(text: object) -> UsageError:
    why = "Cast of a string that is not a number"
    return UsageError("E-OP-TEXT", None, why, expected="digits, INF or NaN", found=repr(text)[:60], hint="Correct it")
