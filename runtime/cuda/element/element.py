"""Elements on the device: storage, load and store code of each dtype, and scalar functions as device functions.

Floats of 16 bits and fewer are stored as bits and widened to float32 when loaded. Elements of fewer than 8 bits take
a byte each, as in NumPy, except in weights, which stay packed (`sub_byte.py`).
"""

from __future__ import annotations

import hashlib
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ...base.dataclass import dataclass
from ...base.process_cache import PROCESS, owned, process_cache
from ..device import simulated_math
from ..device.device import SIMULATED
from .bits import inlined
from .small_dtypes import SMALL


@dataclass(frozen=True)
class Stored:
    """Storage of a dtype.

    Attributes:
        storage: dtype of the arrays that kernels see.
        compute: dtype of a loaded element.
        load, store: text of the conversion, with ``{}`` for the stored or computed element.
    """

    storage: np.dtype[Any]
    compute: np.dtype[Any]
    load: str
    store: str


def _plain(name: str) -> Stored:
    return Stored(np.dtype(name), np.dtype(name), "{}", f"to_{name}({{}})")


F32, BYTE = np.dtype(np.float32), np.dtype(np.uint8)
PLAIN = ("float32", "float64", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8")
STORED: dict[str, Stored] = {
    **{name: _plain(name) for name in PLAIN},
    "bool": Stored(np.dtype(np.uint8), np.dtype(np.bool_), "({} != 0)", "to_uint8(({}) != 0)"),
    "float16": Stored(np.dtype(np.uint16), F32, "half({})", "to_half(to_float32({}))"),
    "bfloat16": Stored(np.dtype(np.uint16), F32, "from_bf16({})", "to_bf16(to_float32({}))"),
    **{name: Stored(BYTE, F32, item.load, item.store) for name, item in SMALL.items()},
    "float8_e8m0fnu": Stored(BYTE, F32, "power({})", "to_power(to_float32({}))"),
    **{
        f"int{width}": Stored(BYTE, np.dtype(np.int8), f"few({{}}, {width})", f"to_few({{}}, {width})")
        for width in (2, 4)
    },
    **{
        f"uint{width}": Stored(BYTE, BYTE, f"few_unsigned({{}}, {width})", f"to_few({{}}, {width})") for width in (2, 4)
    },
}


def storage_of(dtype: np.dtype[Any]) -> Stored:
    """The storage of a dtype that `is_supported` accepts."""
    return STORED[dtype.name]


def is_supported(dtype: np.dtype[Any]) -> bool:
    """Whether kernels support the dtype."""
    return dtype.name in STORED


def compute_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of loaded elements."""
    return STORED[dtype.name].compute


SCALARS: dict[str, Callable[..., Any]] = owned({}, PROCESS)
"""Scalar functions by the key that generated modules use."""


def key_of(function: Callable[..., Any]) -> str:
    """The key of a scalar function, which depends only on its source."""
    key = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__} {_digest(function)}"
    SCALARS[key] = function
    return key


def _digest(function: Callable[..., Any]) -> str:
    code = function.__code__
    used: list[Any] = [
        (name, item)
        for name, item in sorted(function.__globals__.items())
        if name in code.co_names and isinstance(item, int | float)
    ]
    used += [
        _digest(item)
        for name, item in sorted(function.__globals__.items())
        if name in code.co_names and isinstance(item, types.FunctionType)
    ]
    return hashlib.sha256(repr((code.co_code, code.co_consts, code.co_names, used)).encode()).hexdigest()[:16]


def scalar(key: str, dtype: str) -> Callable[..., Any]:
    """The device function of a key, with constants in `dtype`."""
    return device_function(SCALARS[key], dtype)


@process_cache
def device_function(function: Callable[..., Any], dtype: str) -> Callable[..., Any]:
    """A device function for inlining, with the functions that it calls."""
    code = function.__code__
    single = dtype == "float32"
    if single:
        code = code.replace(
            co_consts=tuple(np.float32(item) if type(item) in (int, float) else item for item in code.co_consts)
        )
    names: dict[str, Any] = {"__name__": function.__module__, "__builtins__": __builtins__}
    for name, item in function.__globals__.items():
        if name not in code.co_names:
            continue
        if isinstance(item, types.FunctionType):
            item = device_function(item, dtype)
        elif item is math and SIMULATED:
            item = simulated_math
        elif single and type(item) in (int, float):
            item = np.float32(item)
        names[name] = item
    made: Callable[..., Any] = inlined(types.FunctionType(code, names, function.__name__, function.__defaults__))
    return made


def _rounded(name: str) -> Callable[[Any], Any]:
    dtype = np.dtype(name)
    if not SIMULATED:
        return dtype.type
    wide = np.dtype(np.uint64 if name == "uint64" else np.int64)

    def rounded(number: Any) -> Any:
        whole = isinstance(number, int) and not isinstance(number, bool)
        return np.asarray(number, wide if whole else None).astype(dtype)[()]

    return rounded


CONVERSIONS: dict[str, Any] = {f"to_{name}": _rounded(name) for name in PLAIN}
"""Conversions to each dtype, for generated modules."""
