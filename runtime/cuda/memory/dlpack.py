"""Exchange of device arrays with other libraries by DLPack (unversioned capsules) and ``__cuda_array_interface__``.

Under the simulator device memory is host memory, so the structures name the CPU. Work is ordered on the legacy
default stream; a consumer on another stream gets the array after synchronization.
"""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

import numpy as np

from ...base.dataclass import dataclass
from ...base.errors import UsageError
from ...base.process_cache import PROCESS, owned
from ..device.device import SIMULATED, use_device
from ..element.element import is_supported

ALIGNED = 16
"""Alignment of arrays: bytes that kernels load at a time."""
CPU, CUDA = 1, 2
CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
BFLOAT = 4
NAME, USED = b"dltensor", b"used_dltensor"
DEFAULT_STREAMS = (None, -1, 1)


class Exported(Protocol):
    """A contiguous device array with its first byte at `address`; `owner` may have the `number` of the device."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    owner: Any

    @property
    def address(self) -> int: ...

    @property
    def ndim(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Imported:
    """Another library's array, contiguous in device memory.

    Attributes:
        data: numba-cuda's array of uint8.
        owner: what the memory lasts as long as, None where that is `data`.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    data: Any
    owner: Any = None


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.pythonapi
_api.PyCapsule_New.restype, _api.PyCapsule_New.argtypes = (
    ctypes.py_object,
    (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
)
_api.PyCapsule_IsValid.restype, _api.PyCapsule_IsValid.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p)
_api.PyCapsule_GetPointer.restype, _api.PyCapsule_GetPointer.argtypes = (
    ctypes.c_void_p,
    (ctypes.c_void_p, ctypes.c_char_p),
)
_api.PyCapsule_SetName.restype, _api.PyCapsule_SetName.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p)

_exported: dict[int, tuple[Any, ...]] = owned({}, PROCESS)
"""Objects that capsules keep alive, by the address of their structure."""


def _released(address: int) -> None:
    _exported.pop(address, None)


def _dropped(found: int) -> None:
    """Free a capsule that was not consumed."""
    if _api.PyCapsule_IsValid(found, NAME):
        _released(_api.PyCapsule_GetPointer(found, NAME))


_deleter, _destructor = _DELETER(_released), _DELETER(_dropped)


def place(array: Exported) -> tuple[int, int]:
    """DLPack's device type and index of an array."""
    if SIMULATED:
        return CPU, 0
    from numba import cuda

    number = getattr(array.owner, "number", None)
    return CUDA, int(cuda.current_context().device.id) if number is None else int(number)


def capsule(array: Exported, stream: int | None, wanted: tuple[int, int] | None) -> Any:
    """A capsule that keeps the array alive; BufferError for another device, or a dtype that DLPack lacks."""
    where = place(array)
    if wanted is not None and tuple(wanted) != where:
        raise BufferError(f"the array is on device {where}, not on {wanted}")
    if not SIMULATED and stream not in DEFAULT_STREAMS:
        from numba import cuda

        with use_device(where[1]):
            cuda.synchronize()
    code = (
        BFLOAT
        if array.dtype.name == "bfloat16"
        else CODES.get(array.dtype.kind)
        if array.dtype.isbuiltin == 1
        else None
    )
    if code is None:
        raise BufferError(f"DLPack does not support {array.dtype}")
    shape = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
    made = _Managed(
        _DLTensor(array.address, *where, array.ndim, code, array.dtype.itemsize * 8, 1, shape, None, 0), None
    )
    made.deleter = ctypes.cast(_deleter, ctypes.c_void_p)
    address = ctypes.addressof(made)
    _exported[address] = (made, shape, array)
    return _api.PyCapsule_New(address, NAME, ctypes.cast(_destructor, ctypes.c_void_p))


def by_interface(other: Any) -> Imported:
    """Import an array that has ``__cuda_array_interface__``."""
    found = other.__cuda_array_interface__
    if found.get("stream") not in (None, 1) and not SIMULATED:
        from numba import cuda

        cuda.external_stream(found["stream"]).synchronize()
    return _over(int(found["data"][0]), np.dtype(found["typestr"]), tuple(found["shape"]), found.get("strides"), other)


def by_dlpack(other: Any) -> Imported:
    """Import an array by DLPack."""
    found = other.__dlpack__() if SIMULATED else other.__dlpack__(stream=1)
    address = _api.PyCapsule_GetPointer(id(found), NAME)
    managed = _Managed.from_address(address)
    tensor = managed.tensor
    if tensor.device_type != (CPU if SIMULATED else CUDA) or tensor.lanes != 1:
        raise UsageError(
            "E-DEVICE-ARRAY", None, "the array is not on a CUDA device", found=f"device type {tensor.device_type}"
        )
    dtype = _dtype(tensor.code, tensor.bits)
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] * dtype.itemsize for axis in range(tensor.ndim)) if tensor.strides else None
    _api.PyCapsule_SetName(id(found), USED)
    taken = _Taken(address, managed)
    with use_device(taken.number):
        return _over((tensor.data or 0) + tensor.byte_offset, dtype, shape, strides, taken)


class _Taken:
    """Another library's memory, released with this object.

    Attributes:
        number: of the device.
    """

    def __init__(self, address: int, managed: _Managed) -> None:
        self.number = int(managed.tensor.device_id)
        self._address, self._deleter = address, managed.deleter

    def __del__(self) -> None:
        if self._deleter:
            _DELETER(self._deleter)(self._address)


def _dtype(code: int, bits: int) -> np.dtype[Any]:
    if code == BFLOAT and bits == 16:
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    kind = next((kind for kind, number in CODES.items() if number == code), None)
    if kind is None or bits not in (8, 16, 32, 64):
        why = "the array's dtype is not supported by CUDA kernels"
        raise UsageError("E-DEVICE-ARRAY", None, why, found=f"DLPack code {code} of {bits} bits")
    return np.dtype(np.bool_ if kind == "b" else f"{kind}{bits // 8}")


def _over(
    address: int, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...] | None, owner: Any
) -> Imported:
    """The array at an address; copied if it is not contiguous, or not aligned for kernels."""
    if not is_supported(dtype):
        raise UsageError("E-DEVICE-ARRAY", None, "the array's dtype is not supported by CUDA kernels", found=str(dtype))
    packed: list[int] = []
    step = dtype.itemsize
    for length in reversed(shape):
        packed.insert(0, step)
        step *= length
    plain = (
        strides is None
        or any(length == 0 for length in shape)
        or all(one == other or length == 1 for one, other, length in zip(strides, packed, shape, strict=True))
    )
    nbytes = step if 0 not in shape else 0
    if plain and address % ALIGNED == 0:
        return Imported(dtype, shape, _bytes(address, (nbytes,), None, owner), owner)
    steps = tuple(packed) if plain or strides is None else strides
    if min(steps, default=0) < 0:
        raise UsageError(
            "E-DEVICE-ARRAY", None, "negative strides are not supported for device arrays", found=str(list(steps))
        )
    elements = _bytes(address, (*shape, dtype.itemsize), (*steps, 1), owner).copy_to_host()
    from numba import cuda

    return Imported(dtype, shape, cuda.to_device(np.ascontiguousarray(elements).reshape(-1)))


def _bytes(address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, owner: Any) -> Any:
    """uint8 on the device."""
    from numba import cuda

    if SIMULATED:
        from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

        last = (
            sum((length - 1) * step for length, step in zip(shape, strides or (1,), strict=True)) + 1
            if all(shape)
            else 0
        )
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * last).from_address(address)) if last else np.zeros(0, np.uint8)
        return FakeCUDAArray(np.lib.stride_tricks.as_strided(memory, shape, strides) if last else memory.reshape(shape))
    interface = {"shape": shape, "strides": strides, "data": (address, False), "typestr": "|u1", "version": 3}
    return cuda.from_cuda_array_interface(interface, owner=owner)
