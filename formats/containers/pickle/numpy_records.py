"""NumPy arrays and scalars from inert pickle records.

Source: numpy's `ndarray.__reduce_ex__`, `dtype.__reduce__` and `generic.__reduce__`.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from ....runtime.base.errors import FormatError, UnsupportedError
from ....runtime.base.units import counted
from ....runtime.tensor.dtype import of_numpy
from ....runtime.tensor.storage import Held, Storage
from ....runtime.tensor.stored_tensor import StoredTensor
from ....runtime.tensor.strided import strided, swapped
from .cursor import DAMAGED, Span
from .machine import Global, Record

if TYPE_CHECKING:
    import numpy as np

RECONSTRUCT = "numpy.core.multiarray._reconstruct"
FROM_BUFFER = "numpy.core.numeric._frombuffer"
SCALAR = "numpy.core.multiarray.scalar"
DTYPE = "numpy.dtype"
_TYPES = (
    *("bool_", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "longdouble", "complex64", "complex128", "str_", "bytes_"),
)
_ML_TYPES = (
    *("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("float4_e2m1fn", "int4", "uint4"),
)
_CLASSES = (
    *("Bool", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"),
    *("Float16", "Float32", "Float64", "Complex64", "Complex128"),
)
NUMPY_NAMES = frozenset(
    {RECONSTRUCT, FROM_BUFFER, SCALAR, DTYPE, "numpy.ndarray"}
    | {f"numpy.{name}" for name in _TYPES}
    | {f"ml_dtypes.{name}" for name in _ML_TYPES}
    | {f"numpy.dtypes.{name}DType" for name in _CLASSES}
)
MAX_DIMS = 64


class NotNumeric(Exception):
    """An array of objects, strings or structures, which cannot be a tensor."""


def is_array(record: Record) -> bool:
    """Whether a record is an array."""
    return record.name in (RECONSTRUCT, FROM_BUFFER)


def array(record: Record, file: str) -> StoredTensor:
    """The array of a record, its bytes left where they are.

    Raises:
        NotNumeric: it holds no numbers.
        FormatError: its parts do not fit together.
    """
    shape, dtype, fortran, data = _parts(record, file)
    if (
        not isinstance(shape, tuple)
        or not all(type(length) is int and 0 <= length < 1 << 63 for length in shape)
        or len(shape) > MAX_DIMS
    ):
        why = "an array has a shape that is not made of non-negative integers"
        raise FormatError("E-PKL-ARRAY", file, why, at=record.at, hint=DAMAGED)
    numpy_dtype = _dtype(dtype, record, file)
    storage = _storage(data)
    need = math.prod(shape) * numpy_dtype.itemsize
    if storage is None or storage.nbytes != need:
        found = "no bytes" if storage is None else f"{storage.nbytes:,}"
        why = f"an array of shape {list(shape)} lacks its data"
        raise FormatError(
            "E-PKL-ARRAY", file, why, at=record.at, hint=DAMAGED, expected=f"{counted(need, 'byte')}", found=found
        )
    try:
        ours = of_numpy(numpy_dtype)
    except UnsupportedError as error:
        raise NotNumeric(str(numpy_dtype)) from error
    if numpy_dtype.byteorder == ">":
        storage = swapped(storage, numpy_dtype.itemsize // (2 if ours.kind == "complex" else 1))
    if fortran and len(shape) > 1 and need:
        strides = tuple(math.prod(shape[:axis]) for axis in range(len(shape)))
        storage = strided(storage, numpy_dtype.itemsize, shape, strides)
    return StoredTensor(ours, shape, storage)


def scalar(record: Record, file: str) -> np.generic:
    """The numpy scalar of a record; NotNumeric for strings and objects."""
    import numpy

    dtype, data = record.arguments if len(record.arguments) == 2 else (None, None)
    numpy_dtype = _dtype(dtype, record, file)
    storage = _storage(data)
    if storage is None or storage.nbytes != numpy_dtype.itemsize:
        raise FormatError("E-PKL-ARRAY", file, "a numpy scalar lacks its bytes", at=record.at, hint=DAMAGED)
    value: np.generic = numpy.frombuffer(storage.read(0, storage.nbytes), numpy_dtype)[0]
    return value


def _parts(record: Record, file: str) -> tuple[Any, Any, bool, Any]:
    """Shape, dtype, Fortran order and data, of either pickle form."""
    if record.name == FROM_BUFFER and len(record.arguments) == 4:
        data, dtype, shape, order = record.arguments
        return shape, dtype, order == "F", data
    state = record.state
    if record.name == RECONSTRUCT and isinstance(state, tuple) and len(state) in (4, 5):
        shape, dtype, fortran, data = state[-4:]
        return shape, dtype, bool(fortran), data
    raise FormatError("E-PKL-ARRAY", file, "an array record is incomplete", at=record.at, hint=DAMAGED)


def _storage(data: Any) -> Storage | None:
    """The bytes of an array; text is an ASCII byte string of Python 2."""
    if isinstance(data, Span):
        return data.storage
    if isinstance(data, str) and data.isascii():
        return Held(data.encode())
    return Held(data) if isinstance(data, bytes) else None


def _dtype(value: Any, record: Record, file: str) -> np.dtype:
    """A numeric numpy dtype from its record: a type code, then a state of version, byte order, and nothing else of
    ours."""
    import numpy

    code = value.arguments[0] if isinstance(value, Record) and value.name == DTYPE and value.arguments else value
    if isinstance(code, Global):
        return _named(code.name)
    if not isinstance(code, str):
        raise FormatError("E-PKL-ARRAY", file, "an array lacks a dtype", at=record.at, hint=DAMAGED)
    if not re.fullmatch(r"[<>=|]?[biufc]\d{1,2}", code):
        raise NotNumeric(code[:40])
    state = value.state if isinstance(value, Record) else None
    order = state[1] if isinstance(state, tuple) and len(state) > 1 else "="
    try:
        dtype = numpy.dtype(code)
    except TypeError as error:
        raise NotNumeric(code) from error
    return dtype.newbyteorder(">") if order == ">" else dtype


def _named(name: str) -> np.dtype:
    """The dtype of a named instead of coded type: ``numpy.float32``, ``numpy.dtypes.Float32DType``,
    ``ml_dtypes.bfloat16``."""
    import numpy

    module, _, short = name.rpartition(".")
    if module == "ml_dtypes" and short in _ML_TYPES:
        import ml_dtypes

        dtype: np.dtype = numpy.dtype(getattr(ml_dtypes, short))
        return dtype
    plain = short.removesuffix("DType").lower().rstrip("_")
    if plain not in ("bool", *_TYPES):
        raise NotNumeric(name)
    return numpy.dtype(plain)
